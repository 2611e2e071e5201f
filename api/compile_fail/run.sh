#!/bin/sh
# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# Compiles each program beside this script, which misuses Sheaf, and checks that the compiler says the sentence after
# "WANT: " in it, and says it early. Arguments: the compiler and its flags.
folder=$(dirname "$0")
failed=0
for program in "$folder"/*.cc; do
  want=$(sed -n 's|^// WANT: ||p' "$program")
  if output=$("$@" -fsyntax-only "$program" 2>&1); then
    if [ -n "$want" ]; then
      echo "$program: compiles, but should say: $want"
      failed=1
    fi
  elif [ -z "$want" ]; then
    echo "$program: should compile"
    echo "$output" | head -30
    failed=1
  elif ! echo "$output" | grep -m 2 -E 'error' | grep -qF "$want"; then
    echo "$program: the first errors should say: $want"
    echo "$output" | head -30
    failed=1
  fi
done
exit $failed
