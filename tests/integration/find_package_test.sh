#!/bin/sh
# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# Installs Sheaf, copies a program to a folder of its own, and builds and runs it there as a stranger would: with
# find_package(Sheaf) and nothing of the source tree. Arguments: cmake, the build folder, the C++ compiler.
set -eu
cmake=$1
build=$2
compiler=$3
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$cmake" --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log" 2>&1 || {
  cat "$scratch/install.log"
  exit 1
}
cp -r "$here/find_package" "$scratch/program"
# Not even the path of the sources may appear in what was installed.
if grep -rlF "$(cd "$here/../.." && pwd)/api" "$scratch/prefix/include" "$scratch/prefix/lib"*/cmake "$scratch/prefix/lib"*/*/cmake 2>/dev/null; then
  echo "these installed files name the source tree"
  exit 1
fi
"$cmake" -S "$scratch/program" -B "$scratch/program/build" -DCMAKE_PREFIX_PATH="$scratch/prefix" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Release
"$cmake" --build "$scratch/program/build"
cd "$scratch/program"
output=$(env -u SHEAF_ADDRESS -u SHEAF_EXECUTABLE timeout 60 ./build/program)
echo "$output"
test "$output" = "16 squares sum up to 1240, the counter is at 120"
# What others link must not see what is inside.
if nm -DC --defined-only "$scratch"/prefix/lib*/libsheaf.so "$scratch"/prefix/lib/*/libsheaf.so 2>/dev/null |
  grep -E ' [TWVDB] ' | grep -vE 'sheaf::v1::|for sheaf::v1::| sheaf_run_worker$'; then
  echo "libsheaf.so exports these beside sheaf::v1 and sheaf_run_worker, which Python calls"
  exit 1
fi
