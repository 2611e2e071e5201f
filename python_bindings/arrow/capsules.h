// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Arrow's PyCapsule interface: structures of the C Data Interface inside Python objects. The GIL is
// held when these are called, and free while data is read.
#pragma once

#include <nanobind/nanobind.h>

#include "absl/status/status.h"
#include "arrow/table.h"

namespace sheaf::python {

// Raises what `status` means, by sheaf.arrow.errors.
[[noreturn]] void ThrowArrow(const absl::Status& status);

// What an object with __arrow_c_stream__ or __arrow_c_array__ has; `what` says in the error what was
// wanted. Throws.
arrow::Chunked TakeChunks(nanobind::handle object, const char* what);

// New capsules, which release what they hold unless somebody takes it. Throws.
nanobind::object StreamCapsule(const arrow::Table& table);
nanobind::object SchemaCapsule(const arrow::Table& table);

}  // namespace sheaf::python
