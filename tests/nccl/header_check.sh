#!/bin/sh
# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# header_check.sh COMPILER SOURCE_TREE INCLUDE: collective/nccl/nccl_library.h agrees with nccl.h in INCLUDE; and a header that
# differs is noticed.
set -eu
if [ ! -e "$3/nccl.h" ]; then
  echo "SKIPPED: $3/nccl.h is not there: ./do test fetches the wheel nvidia-nccl-cu13 where it can"
  exit 0
fi
check() { "$1" -std=c++20 -fsyntax-only -Wall -I "$2" -I "$2/tests/nccl/cuda_headers" -I "$3" "$2/tests/nccl/header_check.cc"; }
check "$1" "$2" "$3"
other=$(mktemp -d)
trap 'rm -rf "$other"' EXIT
sed 's/ncclFloat64 *= 8/ncclFloat64 = 99/' "$3/nccl.h" >"$other/nccl.h"
if check "$1" "$2" "$other" 2>/dev/null; then
  echo "a header with another ncclFloat64 passed"
  exit 1
fi
