// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The names that nccl.h takes from CUDA's headers, so that it can be read without them.
#pragma once

#include <stddef.h>

#define __CUDA_BF16_TYPES_EXIST__
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
