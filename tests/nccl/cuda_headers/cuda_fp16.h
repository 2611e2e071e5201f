// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// nccl.h includes it and, without CUDART_VERSION, uses nothing of it.
#pragma once
