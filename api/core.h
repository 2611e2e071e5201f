// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The runtime's names beside the public ones. Both worlds have an Error, an ErrorKind and a
// kForever: here the runtime's get names of their own before the public headers are seen. Every
// source file of api/ that needs the runtime includes this first.
#pragma once

#include "base/clock.h"
#include "base/error_kind.h"
#include "worker/runtime.h"

namespace sheaf {

using CoreError = Error;
using CoreErrorKind = ErrorKind;
inline constexpr Nanos kNever = kForever;

}  // namespace sheaf

#include "sheaf/errors.h"
#include "sheaf/internal/handle.h"

namespace sheaf::inline v1::internal {

// Arrays of public handles are arrays of the runtime's: each is one pointer to an entry.
static_assert(sizeof(Handle) == sizeof(ObjectHandle) && std::is_standard_layout_v<Handle>);
inline std::span<const ObjectHandle> CoreHandles(std::span<const Handle> handles) {
  return {reinterpret_cast<const ObjectHandle*>(handles.data()), handles.size()};
}
// Borrowed.
inline std::span<const ObjectHandle> CoreHandles(const std::vector<ObjectEntry*>& entries) {
  return {reinterpret_cast<const ObjectHandle*>(entries.data()), entries.size()};
}
inline const ObjectHandle& CoreHandle(const Handle& handle) {
  return reinterpret_cast<const ObjectHandle&>(handle);
}
inline Handle PublicHandle(ObjectHandle handle) { return Handle::Adopt(handle.Release()); }
template <class Tag>
RawId PublicId(const Id<Tag>& id) {
  return {id.maker_bits, id.sequence_bits};
}

// Throws InvalidArgumentError for an empty handle.
inline void RequireHandle(const Handle& handle) {
  if (!handle) [[unlikely]]
    throw InvalidArgumentError("an empty ObjectRef, ObjectStream or ActorHandle");
}

}  // namespace sheaf::inline v1::internal
