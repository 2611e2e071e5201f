#!/usr/bin/env bash
# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# A Sheaf cluster on the machines of a Slurm job, for one program:
#
#   srun --ntasks-per-node=1 sheaf-cluster.sh python3 train.py      (sheaf.sbatch is a whole job)
#
# Each task of the step becomes a node; the first one is the head, and runs the program there with SHEAF_ADDRESS set
# when all nodes have joined. When the program ends all nodes do, and its exit status is that of the step.
#
# Settings: SHEAF_PROGRAM (default: sheaf in PATH), CLUSTER_DIRECTORY (a folder that all machines see; default: the one that
# the job was submitted from), CLUSTER_HOST (the address of this machine; default: what its name resolves to, beyond loopback),
# CLUSTER_FLAGS (more options of sheaf start), CLUSTER_SECONDS (for how long nodes wait for each other, default 300).
set -euo pipefail

: "${SLURM_JOB_ID:?this runs below srun}" "${SLURM_PROCID:?this runs below srun}" "${SLURM_NTASKS:?this runs below srun}"
(($# > 0)) || {
  echo "sheaf-cluster.sh: which program? As: srun sheaf-cluster.sh python3 train.py" >&2
  exit 2
}
sheaf=${SHEAF_PROGRAM:-sheaf}
seconds=${CLUSTER_SECONDS:-300}
name=$(hostname)
# Debian gives a machine's name to 127.0.1.1 in /etc/hosts, where no other machine finds it; link-local addresses want a scope.
host=${CLUSTER_HOST:-$({ getent ahosts "$name" || true; } | awk '$1 !~ /^(127\.|::1$|fe80:)/ && !found++ {print $1}')}
[[ -n $host ]] || {
  echo "sheaf-cluster.sh: task $SLURM_PROCID: '$name' resolves to no address that others reach: set CLUSTER_HOST to this machine's" >&2
  exit 1
}
# Readable by this user alone: the token lies there until all nodes have joined, the head's address until the end.
shared=${CLUSTER_DIRECTORY:-${SLURM_SUBMIT_DIR:-$PWD}}/.sheaf-$SLURM_JOB_ID.${SLURM_STEP_ID:-0}.${SLURM_RESTART_COUNT:-0}
# State that a job needs only while it runs, on the machine's own disk.
export SHEAF_DIR=${SLURM_TMPDIR:-${TMPDIR:-/tmp}}/sheaf-$UID-$SLURM_JOB_ID-$SLURM_PROCID SHEAF_STATE_IN_MEMORY=1
session=

fail() {
  echo "sheaf-cluster.sh: task $SLURM_PROCID on $host: $*" >&2
  exit 1
}

leave() {
  local status=$?
  trap - EXIT
  if ((SLURM_PROCID == 0)); then
    rm -rf "$shared"  # Which tells the others that it is over.
  fi
  [[ -z $session ]] || "$sheaf" stop --address "$session" >/dev/null || true
  rm -rf "$SHEAF_DIR"
  exit "$status"
}
trap leave EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

# await COMMAND...: until it succeeds, for `seconds` at most.
await() {
  local end=$((SECONDS + seconds))
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.2
  done
}

# start OPTION...: a node; its answer is JSON.
start() {
  local answer
  # shellcheck disable=SC2086  # Flags are several words.
  answer=$("$sheaf" start --json --timeout "$seconds" --token-file "$shared/token" --host "$host" \
    --num-cpus "${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-$(nproc)}}" "$@" ${CLUSTER_FLAGS:-}) || fail "the node does not start"
  session=$(field session "$answer")
  address=$(field address "$answer")
}

field() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" <<<"$2"; }

all_are_there() { (($("$sheaf" list nodes --json --address "$session" | grep -o '"state": *"ALIVE"' | wc -l) == SLURM_NTASKS)); }

# Until the program is over, or this node is gone: one that is late with an answer is not.
serve() {
  local silent=0
  while [[ -e $shared/address ]]; do
    if "$sheaf" status --address "$session" >/dev/null 2>&1; then silent=0; else ((++silent < 3)) || return 0; fi
    sleep 1
  done
}

if ((SLURM_PROCID == 0)); then
  rm -rf "$shared"
  (umask 077 && mkdir -p "$shared")
  start --head --port 0
  echo "$address" >"$shared/address.part"
  mv "$shared/address.part" "$shared/address"
  await all_are_there || fail "not all $SLURM_NTASKS nodes have joined within $seconds s"
  rm "$shared/token"  # Nobody else comes; a step that is killed leaves none.
  status=0
  SHEAF_ADDRESS=$session "$@" || status=$?
  exit "$status"
else
  await test -e "$shared/address" || fail "the head has not started within $seconds s ($shared/address)"
  start --address "$(<"$shared/address")"
  serve
fi
