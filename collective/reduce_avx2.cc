// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx2 -mf16c, and empty on other machines.
#if defined(__AVX2__) && defined(__F16C__)
#define SHEAF_KERNELS avx2_kernels
#include "collective/reduce_kernels.h"
#endif
