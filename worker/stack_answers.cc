// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/stack_answers.h"

#include <utility>

#include "base/mutex.h"

namespace sheaf {

struct StackAnswers::Gate {
  Mutex mutex;
  std::function<void(const proto::StateAnswer&)> send ABSL_GUARDED_BY(mutex);
};

StackAnswers::StackAnswers(std::function<proto::ProcessStacks()> tell,
                           std::function<void(const proto::StateAnswer&)> send)
    : tell_(std::move(tell)), gate_(std::make_shared<Gate>()) {
  const MutexLock lock(gate_->mutex);
  gate_->send = std::move(send);
}

void StackAnswers::Answer(uint64_t request) {
  runner_.Post([gate = gate_, tell = tell_, request] {
    proto::StateAnswer answer;
    answer.set_request(request);
    if (tell) {
      *answer.add_stacks() = tell();
    } else {
      answer.add_stacks()->set_words("a C++ process: gdb -p PID shows its frames");
    }
    const MutexLock lock(gate->mutex);
    if (gate->send) gate->send(answer);
  });
}

void StackAnswers::Close() {
  runner_.Close({});
  const MutexLock lock(gate_->mutex);
  gate_->send = nullptr;
}

}  // namespace sheaf
