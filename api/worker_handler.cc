// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/core.h"

#include "api/worker_handler.h"

#include <utility>

#include "api/failures.h"
#include "api/process.h"
#include "api/registry.h"
#include "api/templates.h"
#include "sheaf/internal/call.h"

namespace sheaf::inline v1::internal {
namespace {

std::atomic<WorkerHandler*> current_handler{nullptr};

// Of a call from another language.
const FunctionRecord* RecordNamed(const Execution& execution) {
  struct Found {
    std::string function;
    size_t parameters;
    const FunctionRecord* record = nullptr;
  };
  thread_local Found last;
  const proto::TaskTemplate& spec = execution.spec();
  const size_t count = execution.argument_count();
  if (last.record != nullptr && last.parameters == count && last.function == spec.function())
    return last.record;
  const auto kind = spec.kind() == proto::TaskTemplate::TASK ? FunctionRecord::Kind::kFunction
                    : spec.kind() == proto::TaskTemplate::ACTOR_CREATION
                        ? FunctionRecord::Kind::kConstructor
                        : FunctionRecord::Kind::kMethod;
  const FunctionRecord& record =
      FindFunctionNamed(std::string_view(spec.function()).substr(kNamedPrefix.size()), kind, count);
  if (record.streaming != spec.streaming()) {
    throw InvalidArgumentError(
        "'" + record.name +
        (record.streaming ? "' is a generator: call it with num_returns='streaming'"
                          : "' is no generator: call it without num_returns='streaming'"));
  }
  last = {spec.function(), count, &record};
  return &record;
}

// The calling thread runs `execution`.
class Running {
 public:
  explicit Running(Execution* execution) : outer_(std::exchange(CurrentExecution(), execution)) {}
  ~Running() { CurrentExecution() = outer_; }

 private:
  Execution* const outer_;
};

// The record of a call's function; nullptr: there is none. Threads remember their last one: workers
// run the same function again and again. Throws what FindFunctionNamed throws.
const FunctionRecord* RecordOf(const Execution& execution) {
  const proto::TaskTemplate& spec = execution.spec();
  if (std::string_view(spec.function()).starts_with(kNamedPrefix)) return RecordNamed(execution);
  thread_local const FunctionRecord* last = nullptr;
  if (last == nullptr || last->key != spec.function()) last = FindFunction(spec.function());
  return last;
}

}  // namespace

WorkerHandler::WorkerHandler() { current_handler = this; }

WorkerHandler::~WorkerHandler() {
  Stop();
  current_handler = nullptr;
}

WorkerHandler* WorkerHandler::Current() { return current_handler.load(std::memory_order_acquire); }

void WorkerHandler::Execute(std::shared_ptr<Execution> execution) {
  const FunctionRecord* function = nullptr;
  try {
    function = RecordOf(*execution);
  } catch (const Error&) {
    Call(std::move(execution), nullptr).FailWithCurrentException();
    return;
  }
  if (function == nullptr || function->invoke == nullptr) {
    CoreError error;
    error.kind = CoreErrorKind::kNotFound;
    error.message = "this program has no function '" + execution->spec().function() +
                    "': is it another build, or was SHEAF_REMOTE or SHEAF_ACTOR compiled out?";
    execution->Fail(std::move(error), false);
    return;
  }
  // In an actor with coroutines all methods run on their thread, so that they share its state
  // without locks.
  if (function->kind == FunctionRecord::Kind::kMethod &&
      async_actor_.load(std::memory_order_acquire)) {
    Loop()->Post([this, function, execution = std::move(execution)]() mutable {
      Runtime& runtime = TheRuntime();
      runtime.SetCurrentOrigin(execution->origin());
      Run(*function, std::move(execution));
      runtime.SetCurrentOrigin({});
    });
    return;
  }
  if (function->kind == FunctionRecord::Kind::kConstructor) async_actor_ = function->is_async;
  Run(*function, std::move(execution));
}

void WorkerHandler::Run(const FunctionRecord& function, std::shared_ptr<Execution> execution) {
  const Running running(execution.get());
  const SampledCall sampled(&function);
  if (function.kind != FunctionRecord::Kind::kMethod)
    SetRunningStrategy(execution->spec().lease().strategy());
  Call call(std::move(execution), instance_.load(std::memory_order_acquire));
  try {
    CheckClass(function);
    function.invoke(call);
  } catch (...) {
    call.FailWithCurrentException();
  }
}

// A handle of another language is believed to name the class of its actor: not here.
void WorkerHandler::CheckClass(const FunctionRecord& function) {
  if (function.kind == FunctionRecord::Kind::kConstructor) {
    class_.store(&function, std::memory_order_release);
  } else if (function.kind == FunctionRecord::Kind::kMethod) {
    const FunctionRecord* const made = class_.load(std::memory_order_acquire);
    if (made == nullptr || made->class_key != function.class_key) [[unlikely]] {
      throw InvalidArgumentError("this actor is a " + (made == nullptr ? "?" : made->name) +
                                 ", which has no " + function.name);
    }
  }
}

void WorkerHandler::SetInstance(void* instance, void (*destroy)(void*)) {
  destroy_ = destroy;
  instance_.store(instance, std::memory_order_release);
}

std::shared_ptr<CoroutineLoop> WorkerHandler::Loop() {
  const MutexLock lock(mutex_);
  if (loop_ == nullptr) {
    loop_ = std::make_shared<CoroutineLoop>();
    thread_ = std::make_unique<ThreadExecutor>("coroutines");
    thread_->Post(
        [this, loop = loop_] { loop->Run([this] { return stopping_.load(); }, kSecond); });
  }
  return loop_;
}

void WorkerHandler::StartCoroutine(const Call& call, std::coroutine_handle<> body) {
  auto root = std::make_shared<CoroutineRoot>();
  const std::shared_ptr<CoroutineLoop> loop = Loop();
  root->loop = loop;
  root->function = CurrentFunction().function;
  root->execution = &call.execution();
  root->origin = call.execution().origin();
  {
    const MutexLock lock(mutex_);
    absl::erase_if(roots_, [](const auto& entry) { return entry.second.expired(); });
    roots_[root->origin.task] = root;
  }
  loop->Start(root, body);
}

void WorkerHandler::Cancel(TaskId task) {
  std::shared_ptr<CoroutineRoot> root;
  {
    const MutexLock lock(mutex_);
    const auto found = roots_.find(task);
    if (found != roots_.end()) root = found->second.lock();
  }
  if (root == nullptr) return;
  if (const std::shared_ptr<CoroutineLoop> loop = root->loop.lock()) loop->Cancel(root);
}

void WorkerHandler::SampleCalls(std::shared_ptr<std::byte> segment, int64_t hz) {
  if (hz > 0) sampler_ = CallSampler::Start(std::move(segment), hz);
}

void WorkerHandler::Stop() {
  std::unique_ptr<ThreadExecutor> thread;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    if (loop_ != nullptr) loop_->Post([] {});
    thread = std::move(thread_);
  }
  thread.reset();
  void* const instance = instance_.exchange(nullptr);
  if (instance != nullptr) destroy_(instance);
  sampler_.reset();
}

}  // namespace sheaf::inline v1::internal
