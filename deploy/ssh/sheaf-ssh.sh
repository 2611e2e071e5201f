#!/usr/bin/env bash
# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# A Sheaf cluster on machines that one reaches by ssh, and on which `sheaf` is installed:
#
#   sheaf-ssh.sh up HEAD WORKER...       starts the head, hands its token to the others, and starts them
#   sheaf-ssh.sh status HEAD             what there is
#   sheaf-ssh.sh down HEAD WORKER...     the workers leave, then the head ends; its state stays: up goes on with it.
#                                        Nodes there that up HEAD has not started are left alone
#
# A machine is [USER@]HOST[=ADDRESS]: ADDRESS is where the others reach it, if that is not HOST's. The token goes through
# the ssh connections, and appears on no command line.
#
# Settings: SSH (default: ssh -o BatchMode=yes -o ConnectTimeout=10), SHEAF_PROGRAM (the program there; default: sheaf),
# HEAD_FLAGS and WORKER_FLAGS (more options of sheaf start), REMOTE_DIR (SHEAF_DIR there, for each machine with %h in
# place of its name; default: what sheaf takes).
set -euo pipefail

ssh=${SSH:-ssh -o BatchMode=yes -o ConnectTimeout=10}
sheaf=${SHEAF_PROGRAM:-sheaf}

fail() {
  echo "sheaf-ssh.sh: $*" >&2
  exit 1
}

usage() {
  sed -n '4,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

target_of() { echo "${1%%=*}"; }

address_of() {
  local named=${1#*=} host
  host=$(target_of "$1")
  [[ $named != "$1" ]] && echo "$named" && return
  host=${host#*@}
  # Debian gives a machine's own name to 127.0.1.1, where no other machine finds it; who says an address or localhost means it.
  local loopback='^(127[.]|::1$)'
  [[ ! $host =~ ^(127\.|::1$|localhost$) ]] || loopback=none
  { getent ahosts "$host" || true; } | awk -v loopback="$loopback" '$1 !~ loopback && !found++ {print $1}'
}

# The name of a cluster: that of its head's machine.
cluster_of() {
  local target
  target=$(target_of "$1")
  echo "${target#*@}"
}

# on MACHINE WORD...: runs the words there, as they are.
on() {
  local machine=$1 target command='' word
  target=$(target_of "$machine")
  shift
  [[ -z ${REMOTE_DIR:-} ]] || printf -v command 'SHEAF_DIR=%q ' "${REMOTE_DIR//%h/${target#*@}}"
  for word; do
    printf -v word %q "$word"
    command+="$word "
  done
  # shellcheck disable=SC2086  # ssh is several words.
  $ssh "$target" "$command"
}

field() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" <<<"$2"; }

# start MACHINE TOKEN OPTION...: a node there; prints its answer, JSON. The token, if there is one, goes by the input.
start() {
  local machine=$1 token=$2 script='exec "$@"'
  shift 2
  [[ -n $(address_of "$machine") ]] || fail "$machine: no address that others reach is known by this name; say HOST=ADDRESS"
  [[ -z $token ]] || script='read -r SHEAF_TOKEN && export SHEAF_TOKEN && exec "$@"'
  on "$machine" sh -c "$script" sh "$sheaf" start --json --host "$(address_of "$machine")" "$@" <<<"$token" ||
    fail "$machine: the node does not start"
}

up() {
  local head=$1 machine answer joined session token
  shift
  # shellcheck disable=SC2086  # Flags are several words.
  answer=$(start "$head" '' --head --resume=latest ${HEAD_FLAGS:-})
  session=$(field session "$answer")
  mark "$head" "$session" "$head"
  token=$(on "$head" cat "$(dirname "$session")/token" </dev/null)
  for machine; do
    # shellcheck disable=SC2086
    joined=$(start "$machine" "$token" --address "$(field address "$answer")" ${WORKER_FLAGS:-})
    mark "$machine" "$(field session "$joined")" "$head"
  done
  echo "The head of $(($# + 1)) nodes is $(field address "$answer"), its session $session on ${head%%=*}."
  [[ $(field dashboard_url "$answer") == "" ]] || echo "Its dashboard there: $(field dashboard_url "$answer")"
}

# mark MACHINE SESSION HEAD: the node there is one of HEAD's cluster, which down finds by the file.
mark() {
  # shellcheck disable=SC2016  # The shell there expands it.
  on "$1" sh -c 'echo "$2" >"$1/started_by_ssh"' sh "$2" "$(cluster_of "$3")" </dev/null
}

# stop MACHINE HEAD: the nodes there of HEAD's cluster end.
stop() {
  # shellcheck disable=SC2016
  on "$1" sh -c '"$1" sessions --json | grep -o "\"session\":\"[^\"]*\",\"state\":\"RUNNING\"" | cut -d\" -f4 | {
    ended=1
    while read -r session; do
      [ "$(cat "$session/started_by_ssh" 2>/dev/null)" = "$2" ] && "$1" stop --address "$session" </dev/null && ended=0
    done
    exit "$ended"
  }' sh "$sheaf" "$(cluster_of "$2")" </dev/null || {
    echo "sheaf-ssh.sh: $1: no node of the cluster of $(cluster_of "$2") was stopped" >&2
    return 1
  }
}

down() {
  local head=$1 machine
  shift
  for machine; do
    stop "$machine" "$head" || true
  done
  stop "$head" "$head"
}

(($# >= 2)) || usage
command=$1
shift
case $command in
  up | down) "$command" "$@" ;;
  status) on "$1" "$sheaf" status </dev/null ;;
  *) usage ;;
esac
