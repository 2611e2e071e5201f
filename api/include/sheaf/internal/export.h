// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What libsheaf.so exports: names of the inline namespace v1 with this mark, and nothing else.
#pragma once

#define SHEAF_API __attribute__((visibility("default")))
