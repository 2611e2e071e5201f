// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#define SHEAF_KERNELS plain_kernels
#include "collective/reduce_kernels.h"
