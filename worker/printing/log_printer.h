// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Hands the lines of workers to the driver's program, in their order, on a thread of its own: a
// terminal or pipe that takes none holds up no wait. What it has not taken is kept, up to
// kMostBytes; what comes beyond that is left out, and a line of its own says how many were.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "proto/raylet.pb.h"
#include "worker/callback_runner.h"

namespace sheaf {

class LogPrinter {
 public:
  static constexpr size_t kMostBytes = 64 << 20;

  explicit LogPrinter(std::function<void(const proto::LogLines&)> print);
  // One thread at a time.
  void Print(proto::LogLines lines);
  size_t left_out() const { return left_out_; }  // Lines, since there was room.
  // As CallbackRunner's.
  void Relieve() { runner_.Relieve(); }
  void Close(Nanos patience) { runner_.Close({.finish = true, .patience = patience}); }

 private:
  struct Shared {
    const std::function<void(const proto::LogLines&)> print;
    std::atomic<size_t> bytes{0};  // Not printed yet.
  };
  void Post(proto::LogLines lines);

  const std::shared_ptr<Shared> shared_;
  size_t left_out_ = 0;  // Lines, since there was room.
  CallbackRunner runner_{"sheaf-printing"};
};

}  // namespace sheaf
