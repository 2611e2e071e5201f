// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/stacks.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "python_bindings/core/process.h"

namespace sheaf::python {
namespace {

constexpr Nanos kPatience = 250 * kMillisecond;  // For the GIL, which waiting Python gives in 5 ms.
constexpr size_t kMostText = 1 << 20;

PythonFunction prepare("sheaf._internal.stacks", "prepare");
PythonFunction dump("sheaf._internal.stacks", "dump");

// How faulthandler is called, and where it writes.
struct FaultHandler {
  int file = -1;
  void (*write)(int signal) = nullptr;
  int signal = 0;
};
FaultHandler fault_handler;  // Written once, before anybody asks.

std::string TextOf(PyObject* text) {
  const Owned bytes = Owned::Steal(PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace"));
  if (!bytes) return {};
  return std::string(BytesOf(bytes.get()));
}

// `stack` is as stacks.py has it.
void AddStack(PyObject* stack, proto::ProcessStacks& stacks) {
  proto::ThreadStack& thread = *stacks.add_threads();
  thread.set_name(TextOf(PyTuple_GetItem(stack, 0)));
  thread.set_os_thread(static_cast<int32_t>(PyLong_AsLong(PyTuple_GetItem(stack, 1))));
  thread.set_coroutine(PyObject_IsTrue(PyTuple_GetItem(stack, 2)) != 0);
  PyObject* const frames = PyTuple_GetItem(stack, 3);
  for (Py_ssize_t i = 0; i < PyList_Size(frames); ++i) {
    PyObject* const line = PyList_GetItem(frames, i);
    proto::StackFrame& frame = *thread.add_frames();
    frame.set_function(TextOf(PyTuple_GetItem(line, 0)));
    frame.set_file(TextOf(PyTuple_GetItem(line, 1)));
    frame.set_line(static_cast<uint32_t>(PyLong_AsLong(PyTuple_GetItem(line, 2))));
  }
}

proto::ProcessStacks Walk() {
  const CallbackScope scope;
  proto::ProcessStacks stacks;
  const Owned list = Owned::Steal(dump());
  if (!list) {
    stacks.set_words("Python could not walk its stacks");
    return stacks;
  }
  for (Py_ssize_t i = 0; i < PyList_Size(list.get()); ++i)
    AddStack(PyList_GetItem(list.get(), i), stacks);
  return stacks;
}

// One walk, which may outlive who wants it.
struct Wanted {
  Mutex mutex;
  CondVar changed;
  bool done ABSL_GUARDED_BY(mutex) = false;
  proto::ProcessStacks stacks ABSL_GUARDED_BY(mutex);
};

// The last one that somebody began. Its thread stays for ever, in the wait for a GIL that never
// comes, perhaps.
class Walker {
 public:
  // False: the GIL does not come. `stacks` has been set otherwise.
  bool TryWalk(proto::ProcessStacks* stacks) {
    const bool still_waits = last_ != nullptr && !IsDone(*last_);
    if (!still_waits) {
      last_ = std::make_shared<Wanted>();
      thread_.Post([wanted = last_] {
        proto::ProcessStacks walked = Walk();
        const MutexLock lock(wanted->mutex);
        wanted->stacks = std::move(walked);
        wanted->done = true;
        wanted->changed.NotifyAll();
      });
    }
    Wanted& wanted = *last_;
    const MutexLock lock(wanted.mutex);
    // Who has waited in vain just now need not wait again.
    const auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(wanted.mutex) { return wanted.done; };
    if (!wanted.changed.WaitFor(wanted.mutex, still_waits ? 0 : kPatience, done)) return false;
    *stacks = wanted.stacks;
    return true;
  }

 private:
  static bool IsDone(Wanted& wanted) {
    const MutexLock lock(wanted.mutex);
    return wanted.done;
  }

  ThreadExecutor thread_{"sheaf-walk"};
  std::shared_ptr<Wanted> last_;
};

proto::ProcessStacks AskFaultHandler() {
  constexpr char kHeld[] = "native code holds the interpreter (GIL)";
  proto::ProcessStacks stacks;
  if (fault_handler.write == nullptr || ftruncate(fault_handler.file, 0) != 0) {
    stacks.set_words(kHeld);
    return stacks;
  }
  lseek(fault_handler.file, 0, SEEK_SET);
  fault_handler.write(fault_handler.signal);
  std::string text(kMostText, '\0');
  const ssize_t size = pread(fault_handler.file, text.data(), text.size(), 0);
  text.resize(size < 0 ? 0 : static_cast<size_t>(size));
  stacks = ParseFaultHandler(text);
  stacks.set_words(kHeld);
  return stacks;
}

}  // namespace

bool PrepareStacks() {
  if (fault_handler.write != nullptr) return true;
  const Owned found = Owned::Steal(prepare());
  if (!found) return false;
  const auto number = [&](Py_ssize_t i) {
    return static_cast<int>(PyLong_AsLong(PyTuple_GetItem(found.get(), i)));
  };
  struct sigaction action{};
  if (number(0) >= 0 && sigaction(number(1), nullptr, &action) == 0)
    fault_handler = {number(0), action.sa_handler, number(1)};
  return true;
}

proto::ProcessStacks TellStacks() {
  static Mutex& one_at_a_time = *new Mutex;
  static Walker* walker ABSL_GUARDED_BY(one_at_a_time) = nullptr;
  const MutexLock lock(one_at_a_time);
  if (walker == nullptr) walker = new Walker;
  proto::ProcessStacks stacks;
  return walker->TryWalk(&stacks) ? stacks : AskFaultHandler();
}

// Thread 0x00007f0c1d7fa6c0 (most recent call first):
//   File "/usr/lib/python3.11/threading.py", line 324 in wait
proto::ProcessStacks ParseFaultHandler(std::string_view text) {
  proto::ProcessStacks stacks;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    const bool current = absl::ConsumePrefix(&line, "Current thread ");
    if (current || absl::ConsumePrefix(&line, "Thread ")) {
      const absl::string_view name = line.substr(0, line.find(" (most recent"));
      stacks.add_threads()->set_name("thread " + std::string(name));
    } else if (absl::ConsumePrefix(&line, "  File \"") && stacks.threads_size() != 0) {
      const size_t end = line.find("\", line ");
      if (end == absl::string_view::npos) continue;
      absl::string_view rest = line.substr(end + 8);
      const size_t in = rest.find(" in ");
      uint32_t number = 0;
      if (in == absl::string_view::npos) continue;
      (void)absl::SimpleAtoi(rest.substr(0, in), &number);  // "???" where it is not known.
      auto& threads = *stacks.mutable_threads();
      proto::StackFrame& frame = *threads.Mutable(threads.size() - 1)->add_frames();
      frame.set_file(std::string(line.substr(0, end)));
      frame.set_line(number);
      frame.set_function(std::string(rest.substr(in + 4)));
    }
  }
  return stacks;
}

}  // namespace sheaf::python
