#!/usr/bin/env bash
# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# Checks every spin model (*.pml) of the repository, with the variants that its header comment lists, one a line:
#
#   // spin: -DN=2 -DF=3 => pass          explored completely, no assertion fails, nobody is stuck
#   // spin: -DN=2 -DNO_FENCE => fail     a planted fault, which spin must find
#   // spin-long: -DN=3 -DF=3 => pass     only with --long
#
# The words before => are macro definitions for the model. A model states its promise as assertions and as end labels
# (a process may only stop at one). Both // and /* */ comments do.
#
#   run_models.sh [--long] [MODEL.pml...]
# Exit status: 0 all as listed; 1 some are not; 77 spin or a C compiler is missing (ctest: skipped).
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
kinds='spin'
if [[ ${1:-} == --long ]]; then
  kinds='spin(-long)?'
  shift
fi
for tool in spin cc; do
  if ! command -v "$tool" >/dev/null; then
    echo "SKIPPED: no $tool here (Debian: apt-get install spin gcc)"
    exit 77
  fi
done

models=("$@")
if [[ $# == 0 ]]; then
  mapfile -t models < <(find "$root" -name build -prune -o -name '*.pml' -print | sort)
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

# check MODEL EXPECTED FLAGS...
check() {
  local model=$1 expected=$2 found start=$SECONDS optimise=-O2
  shift 2
  [[ $expected == fail ]] && optimise=-O0  # Faults are found soon: compiling is what takes time.
  rm -rf "$work/pan" && mkdir "$work/pan"
  # -b: a search that is cut off at the depth limit is an error, not a pass.
  if (cd "$work/pan" && spin -a "$@" "$model" && cc $optimise -DSAFETY -DCOLLAPSE -DMEMLIM=6000 -o pan pan.c &&
      ./pan -m2000000 -b -n) >"$work/out" 2>&1 && grep -q 'errors: ' "$work/out"; then
    found=fail
    if grep -q 'errors: 0' "$work/out" && ! grep -q -e 'Search not completed' -e 'out of memory' "$work/out"; then
      found=pass
    elif ! grep -q -e 'assertion violated' -e 'invalid end state' "$work/out"; then
      found='no answer'
    fi
  else
    found='no answer'
  fi
  local states
  states=$(awk '/states, stored/ {print $1}' "$work/out")
  local line="${model#"$root"/} $*: $found, ${states:-0} states, $((SECONDS - start)) s"
  if [[ $found == "$expected" ]]; then
    passed=$((passed + 1))
    echo "ok      $line"
  else
    failed=$((failed + 1))
    echo "NOT OK  $line, expected $expected"
    sed 's/^/    /' "$work/out" | tail -25
  fi
}

for model in "${models[@]}"; do
  model=$(realpath "$model")
  variants=0
  while read -r -a words; do
    check "$model" "${words[-1]}" "${words[@]:0:${#words[@]}-1}"
    variants=$((variants + 1))
  done < <(grep -oE "(//|[*]) *$kinds: .* => (pass|fail)" "$model" | sed -E 's/^[^:]*: //; s/ => / /')
  if [[ $variants == 0 ]]; then
    echo "NOT OK  ${model#"$root"/} lists no variants"
    failed=$((failed + 1))
  fi
done
echo "$passed passed, $failed failed"
[[ $failed == 0 && $passed != 0 ]]
