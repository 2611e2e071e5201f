#!/usr/bin/env bash
# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# The main job on a cluster of two nodes on this machine: the tour in C++, then the same training in Python. The cluster uses free
# ports and a temporary folder, and is gone afterwards, however this script ends.
#
#   main_job.sh BUILD [--short] [--keep] [FOLDER]
#
# BUILD: where Sheaf is built. --short: a part of it, for the tests. --keep: the cluster stays until Ctrl-C, to look at. FOLDER: whose
# words are counted. PYTHON: the interpreter with NumPy; without one that can import the package, Python is left out.
set -euo pipefail

build=$(cd "$1" && pwd)
examples=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
shift
short=() keep=no
while (($# > 0)); do
  case $1 in
    --short) short=(--short) ;;
    --keep) keep=yes ;;
    *) break ;;
  esac
  shift
done

unset SHEAF_ADDRESS
export SHEAF_DIR SHEAF_STATE_IN_MEMORY=1 SHEAF_LOG_TO_DRIVER=0
scratch=$(mktemp -d "${TMPDIR:-/tmp}/sheaf-main-job-XXXXXX")
SHEAF_DIR=$scratch/sheaf
running=
clean_up() {
  set +e
  trap '' INT TERM HUP
  if [[ -n $running ]]; then
    kill "$running" 2>/dev/null
    wait "$running" 2>/dev/null
  fi
  "$build/cli/sheaf" stop --address "$SHEAF_DIR" --timeout 10 >/dev/null 2>&1
  rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# In the background, since bash would handle a signal only when a program in the foreground has ended.
run() {
  "$@" <&0 &
  running=$!
  local status=0
  wait "$running" || status=$?
  running=
  return "$status"
}

# start_node FLAG...: its JSON.
start_node() { "$build/cli/sheaf" start --json --port 0 --num-cpus 2 --num-gpus 0 --object-store-memory 256MiB "$@"; }
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" <<<"$2"; }

head=$(start_node --head)
member=$(start_node --address "$(field address "$head")")
SHEAF_ADDRESS=$(field session "$head")
export SHEAF_ADDRESS
# The second node is one of the cluster when it knows the first: a moment.
for ((i = 0; i < 300; ++i)); do
  (($("$build/cli/sheaf" list nodes --json | grep -o '"ALIVE"' | wc -l) == 2)) && break
  sleep 0.1
done

status=0
run "$build/examples/main_job" "${short[@]}" "$@" || status=$?

python=${PYTHON:-$build/venv/bin/python}
export PYTHONPATH=$build/python${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
if ! "$python" -c 'import numpy, sheaf' 2>/dev/null; then
  printf '\nNo training in Python: %s cannot import NumPy and the package sheaf.\n' "$python"
else
  # As in the tour, the ranks are on both nodes, two on each.
  [[ ${#short[@]} -gt 0 ]] && how=(--epochs 8) || how=(--epochs 15 --scaling)
  run "$python" "$examples/python/train_digits.py" "${how[@]}" || status=$?
fi

printf '\nMetrics of the nodes, for as long as they run:\n  %s\n  %s\n' "$(field metrics_url "$head")" "$(field metrics_url "$member")"
if [[ $keep == yes ]]; then
  printf 'SHEAF_ADDRESS=%s joins them. Ctrl-C ends them.\n' "$SHEAF_ADDRESS"
  run sleep infinity || true
fi
exit "$status"
