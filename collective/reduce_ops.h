// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Element-wise reduction of several arrays into one result, written to one or several places.
#pragma once

#include <cstddef>
#include <span>

#include "collective/communicator.h"

namespace sheaf {

// targets[t][i] = op over all s, in their order, of sources[s][i], for i < count. `op` kAverage
// divides by sources.size(). A target may be a source (the same
// address), and targets do not overlap otherwise. At least one source, and any number of targets.
// The result has the same bits on every machine that rounds as IEEE 754 says, whichever
// instructions it has. Thread-safe.
void Reduce(DataType type, ReduceOp op, std::span<const std::byte* const> sources,
            std::span<std::byte* const> targets, size_t count);
// The same; kAverage divides by `divisor`, which `type` holds. `weights` are for kAverage of
// kFloat16 or kBfloat16: by what each source is multiplied, as float; empty: by nothing.
void ReduceAndDivide(DataType type, ReduceOp op, std::span<const std::byte* const> sources,
                     std::span<std::byte* const> targets, size_t count, size_t divisor,
                     std::span<const float> weights = {});

// The same without the instructions of newer machines, to compare with.
void ReducePlainly(DataType type, ReduceOp op, std::span<const std::byte* const> sources,
                   std::span<std::byte* const> targets, size_t count);

// Between float and `type`, kFloat16 or kBfloat16: rounded to nearest even. Thread-safe.
void ToFloat(DataType type, const void* from, float* to, size_t count);
void FromFloat(DataType type, const float* from, void* to, size_t count);

}  // namespace sheaf
