// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Objects without their types: what object_ref.h asks of the library.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "sheaf/errors.h"
#include "sheaf/internal/decoder.h"
#include "sheaf/internal/encoder.h"
#include "sheaf/internal/handle.h"

namespace sheaf::inline v1::internal {

using Timeout = std::chrono::nanoseconds;          // max(): for ever. Below 0 is 0.
using Failure = std::shared_ptr<const ErrorInfo>;  // Null: none.

SHEAF_API Handle PutBytes(std::string_view bytes);
SHEAF_API Handle PutValue(const Encoder& value);

// Views of objects, pinned as long as this lives.
class SHEAF_API Views {
 public:
  // Waits for all. failure() says why not all are there; the others are undefined then.
  Views(std::span<const Handle> objects, Timeout timeout);
  Views(const Handle& object, Timeout timeout)
      : Views(std::span<const Handle>(&object, 1), timeout) {}
  ~Views();
  Views(const Views&) = delete;
  Views& operator=(const Views&) = delete;

  const Failure& failure() const { return failure_; }
  bool has_value(size_t index) const;
  std::string_view bytes(size_t index) const;  // has_value.
  const Source* source(size_t index) const;
  ErrorInfo error(size_t index) const;  // Not has_value.

 private:
  Failure failure_;
  void* storage_[3];  // A vector of the runtime's views, re-used by the thread.
};

// Fills `ready` (ascending indices). Throws for anything but a timeout.
SHEAF_API std::vector<size_t> WaitReady(std::span<const Handle> objects, size_t num_returns,
                                        Timeout timeout, bool fetch_local);
SHEAF_API bool IsReady(const Handle& object);

// Memory of the store, to become an object.
class SHEAF_API Building {
 public:
  // Throws ObjectStoreFullError.
  explicit Building(size_t bytes);
  ~Building();
  Building(Building&& other) noexcept;
  Building& operator=(Building&&) = delete;
  char* data() const;
  Handle Seal();  // Once.

 private:
  void* buffer_;
};

template <class T>
T Decode(const Views& views, size_t index) {
  if (!views.has_value(index)) [[unlikely]]
    Raise(views.error(index));
  return ReadValue<T>(views.bytes(index), views.source(index));
}
template <class T>
Result<T> TryDecode(const Views& views, size_t index) {
  if (!views.has_value(index)) return views.error(index);
  try {
    if constexpr (std::is_void_v<T>) {
      return {};
    } else {
      return ReadValue<T>(views.bytes(index), views.source(index));
    }
  } catch (const Error& error) {
    return error.info();
  }
}

}  // namespace sheaf::inline v1::internal
