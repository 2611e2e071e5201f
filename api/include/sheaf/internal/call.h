// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One call as the worker that runs it sees it: arguments in, results out.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "sheaf/internal/decoder.h"
#include "sheaf/internal/encoder.h"

namespace sheaf {
class Execution;  // The runtime's.
}

namespace sheaf::inline v1::internal {

// Valid while the function runs. Coroutines copy it: the call ends when the last copy goes.
class SHEAF_API Call {
 public:
  Call(std::shared_ptr<Execution> execution, void* instance);
  ~Call();
  Call(const Call&);
  Call& operator=(const Call&) = delete;

  // Throws InvalidArgumentError: the caller sent another number.
  void ExpectArguments(size_t count) const;
  std::string_view bytes(size_t argument) const;
  const Source* source(size_t argument) const;
  void* instance() const { return instance_; }  // Of the actor.
  size_t returns() const;                       // 1, or one for each element of a tuple.

  void Return(size_t index, std::string_view bytes);
  void Return(size_t index, const Encoder& value);
  bool Yield(const Encoder& value);  // False: nobody wants more.
  // Constructors: the actor is there. `destroy` is run when the process ends in order.
  void SetInstance(void* instance, void (*destroy)(void*));
  // Ends the call with the exception being handled.
  void FailWithCurrentException();

  Execution& execution() const { return *execution_; }
  const std::shared_ptr<Execution>& shared() const { return execution_; }

 private:
  std::shared_ptr<Execution> execution_;
  void* instance_;
};

template <class T>
inline void ReturnValue(Call& call, size_t index, const T& value) {
  if constexpr (Scalar<T>) {
    SmallStream stream;
    WriteScalar(stream, value);
    call.Return(index, {stream.bytes, stream.size});
  } else {
    Encoder encoder;
    Write(encoder, value);
    call.Return(index, encoder);
  }
}
inline void ReturnNothing(Call& call) { call.Return(0, {"\xc0", 1}); }

}  // namespace sheaf::inline v1::internal
