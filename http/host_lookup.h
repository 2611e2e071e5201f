// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The addresses of a host, without waiting longer than one wants: the resolver of the system can be
// neither bounded nor broken off, so it runs on a thread that is left to itself.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace sheaf::http {

// Thread-safe.
class HostLookup {
 public:
  HostLookup();
  ~HostLookup();

  // Numeric addresses, at least one. A numeric `host` is its own, and "localhost" this machine, without
  // a question. kDeadlineExceeded: `deadline` has come. kUnavailable: nobody knows it. kCancelled.
  absl::StatusOr<std::vector<std::string>> AddressesOf(const std::string& host, Nanos deadline);
  // AddressesOf waits no more, now and later.
  void Cancel();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace sheaf::http
