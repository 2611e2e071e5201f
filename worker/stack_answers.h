// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Answers what the raylet asks of this process's threads. The frame comes to whichever thread drives,
// which never runs user code; the answer is found on a thread of its own, and so comes also while
// user code holds all that languages have to lock. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "proto/raylet.pb.h"
#include "worker/callback_runner.h"

namespace sheaf {

class StackAnswers {
 public:
  // `tell`: RuntimeOptions::tell_stacks. `send` is called on the thread of this, never after Close.
  StackAnswers(std::function<proto::ProcessStacks()> tell,
               std::function<void(const proto::StateAnswer&)> send);
  ~StackAnswers() { Close(); }
  StackAnswers(const StackAnswers&) = delete;
  StackAnswers& operator=(const StackAnswers&) = delete;

  // One question; never waits.
  void Answer(uint64_t request);
  // To be called a few times a second.
  void Relieve() { runner_.Relieve(); }
  // No answer is sent any more. Not to be called under a lock that `send` takes.
  void Close();

 private:
  struct Gate;
  const std::function<proto::ProcessStacks()> tell_;
  const std::shared_ptr<Gate> gate_;  // Outlives this while an answer is being found.
  CallbackRunner runner_{"sheaf-stacks"};
};

}  // namespace sheaf
