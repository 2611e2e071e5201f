// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// SHEAF_RETURN_IF_ERROR(expr) and SHEAF_ASSIGN_OR_RETURN(lhs, expr), as Abseil's users know them.
#pragma once

#include "absl/status/status.h"

#define SHEAF_RETURN_IF_ERROR(expression)                               \
  do {                                                                  \
    if (absl::Status sheaf_status = (expression); !sheaf_status.ok()) { \
      return sheaf_status;                                              \
    }                                                                   \
  } while (false)

#define SHEAF_CONCAT_INNER(a, b) a##b
#define SHEAF_CONCAT(a, b) SHEAF_CONCAT_INNER(a, b)
#define SHEAF_ASSIGN_OR_RETURN(lhs, expression) \
  SHEAF_ASSIGN_OR_RETURN_IMPL(SHEAF_CONCAT(sheaf_result_, __LINE__), lhs, expression)
#define SHEAF_ASSIGN_OR_RETURN_IMPL(result, lhs, expression) \
  auto result = (expression);                                \
  if (!result.ok()) return result.status();                  \
  lhs = *std::move(result)
