// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who is to be called once when an object is here, or can come no more because the runtime of this
// process has ended. Under the driver's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "worker/owner/object_resolver.h"

namespace sheaf {

class ReadyHooks {
 public:
  // Has `object` brought here by `resolver`, and calls `hook` when it is there: at once if it is.
  void When(ObjectResolver& resolver, ObjectEntry& object, std::function<void()> hook) {
    if (ended_ || resolver.IsHere(object)) return hook();
    const uint64_t number = ++last_;
    hooks_.emplace(number, std::move(hook));
    resolver.WhenHere(object, [this, number](ObjectEntry&) {
      auto reached = hooks_.extract(number);
      if (!reached.empty()) reached.mapped()();
    });
  }
  // Calls all of them, and from now on each at once: a look at their objects tells why.
  void End() {
    ended_ = true;
    for (auto& [number, hook] : std::exchange(hooks_, {})) hook();
  }

 private:
  absl::flat_hash_map<uint64_t, std::function<void()>> hooks_;
  uint64_t last_ = 0;
  bool ended_ = false;
};

}  // namespace sheaf
