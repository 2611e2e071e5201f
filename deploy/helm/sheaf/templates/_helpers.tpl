{{- define "sheaf.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- /* Of all that belongs to one cluster. */}}
{{- define "sheaf.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sheaf.labels" -}}
{{ include "sheaf.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "sheaf.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "sheaf.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "sheaf.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "sheaf.tokenSecret" -}}
{{ .Values.token.existingSecret | default (printf "%s-token" (include "sheaf.fullname" .)) }}
{{- end }}

{{- define "sheaf.tokenGeneration" -}}
{{ .Values.token.generation | int64 }}
{{- end }}

{{- /* (root, node): of each pod. Nodes read the token when they start, so another one takes other pods. */}}
{{- define "sheaf.annotations" -}}
{{- $root := index . 0 }}{{ $node := index . 1 -}}
sheaf.io/token-generation: {{ include "sheaf.tokenGeneration" $root | quote }}
{{- with $node.annotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Empty: nodes speak without TLS. */}}
{{- define "sheaf.tlsSecret" -}}
{{- if .Values.tls.existingSecret }}{{ .Values.tls.existingSecret }}
{{- else if .Values.tls.certManager.issuer }}{{ include "sheaf.fullname" . }}-tls{{ end }}
{{- end }}

{{- define "sheaf.headHost" -}}
{{ include "sheaf.fullname" . }}-head.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{- define "sheaf.nodesDomain" -}}
{{ include "sheaf.fullname" . }}-nodes.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{- /* (root, words, port): the command of a node. Others dial its pod, not a Service, behind which no node can listen: by its
address, or, as certificates are for names, by a name below the headless Service: the head's is its pod's, as of each pod of a
StatefulSet; workers' are made of their addresses. */}}
{{- define "sheaf.command" -}}
{{- $root := index . 0 }}{{ $words := index . 1 }}{{ $port := index . 2 -}}
{{- if include "sheaf.tlsSecret" $root -}}
- sh
- -c
- exec {{ $words }} "$@" --advertise-address="{{ if $port }}$HOSTNAME{{ else }}$(IFS=.:; set -- $POD_IP; IFS=-; echo "$*"){{ end }}.{{ include "sheaf.nodesDomain" $root }}:{{ $port }}"
- sheaf
{{- else -}}
- {{ splitList " " $words | join "\n- " }}
- '--advertise-address={{ ternary "[$(POD_IP)]" "$(POD_IP)" (eq $root.Values.listenAddress "::") }}:{{ $port }}'
{{- end }}
{{- end }}

{{- /* (root, node): the flags that head and workers have in common, one a line. */}}
{{- define "sheaf.nodeFlags" -}}
{{- $root := index . 0 }}{{ $node := index . 1 -}}
- --block
- --resume=latest
- '--host={{ $root.Values.listenAddress }}'
- --health-port=9401
- '--metrics-address={{ $root.Values.listenAddress }}'
- --metrics-port=9400
- --metrics-token-file=/etc/sheaf/metrics/token
- '--log-format={{ $root.Values.logFormat }}'
{{- if include "sheaf.tlsSecret" $root }}
- --tls-dir=/etc/sheaf/tls
{{- end }}
{{- if hasKey $node "cpus" }}
- '--num-cpus={{ $node.cpus }}'
{{- end }}
{{- range $flag := $node.flags }}
- {{ $flag | quote }}
{{- end }}
{{- end }}

{{- /* (root, node): what the container of each node has besides its command. */}}
{{- define "sheaf.container" -}}
{{- $root := index . 0 }}{{ $node := index . 1 -}}
image: {{ include "sheaf.image" $root }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
env:
  - {name: SHEAF_DIR, value: /var/lib/sheaf/sessions}
  - {name: HOME, value: /tmp}
  - name: POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  - name: SHEAF_TOKEN
    valueFrom: {secretKeyRef: {name: {{ include "sheaf.tokenSecret" $root }}, key: token}}
  {{- if not (hasKey $node "cpus") }}
  - name: SHEAF_CPUS
    valueFrom: {resourceFieldRef: {resource: requests.cpu}}
  {{- end }}
  {{- with $node.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources:
  requests: {{- toYaml $node.resources.requests | nindent 4 }}
  limits:
    {{- toYaml $node.resources.limits | nindent 4 }}
    {{- with $node.gpus }}
    {{ $node.gpuResource | default "nvidia.com/gpu" }}: {{ . }}
    {{- end }}
startupProbe:
  httpGet: {path: /api/healthz, port: health}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 150
livenessProbe:
  httpGet: {path: /api/healthz, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
volumeMounts:
  - {name: state, mountPath: /var/lib/sheaf}
  - {name: tmp, mountPath: /tmp}
  - {name: metrics-token, mountPath: /etc/sheaf/metrics, readOnly: true}
  {{- if include "sheaf.tlsSecret" $root }}
  - {name: tls, mountPath: /etc/sheaf/tls, readOnly: true}
  {{- end }}
  {{- with $node.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* (root, node): what the pod of each node has besides its container and its state. */}}
{{- define "sheaf.pod" -}}
{{- $root := index . 0 }}{{ $node := index . 1 -}}
serviceAccountName: {{ include "sheaf.serviceAccount" $root }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $node.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $node.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with $node.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $node.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $node.topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if or $node.tolerations $node.gpus }}
tolerations:
  {{- if $node.gpus }}
  - {key: {{ $node.gpuResource | default "nvidia.com/gpu" }}, operator: Exists, effect: NoSchedule}
  {{- end }}
  {{- with $node.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* (root, node): the volumes of each node but its state. */}}
{{- define "sheaf.volumes" -}}
{{- $root := index . 0 }}{{ $node := index . 1 -}}
- {name: tmp, emptyDir: {}}
- name: metrics-token
  secret:
    secretName: {{ include "sheaf.tokenSecret" $root }}
    defaultMode: 0440
    items: [{key: metrics-token, path: token}]
{{- with include "sheaf.tlsSecret" $root }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items:
      - {key: tls.crt, path: node.pem}
      - {key: tls.key, path: node.key}
      - {key: ca.crt, path: ca.pem}
{{- end }}
{{- with $node.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Labels of a node, as --labels takes them. */}}
{{- define "sheaf.nodeLabels" -}}
{{- $all := list }}{{ range $key, $value := . }}{{ $all = append $all (printf "%s=%v" $key $value) }}{{ end }}
{{- join "," $all }}
{{- end }}
