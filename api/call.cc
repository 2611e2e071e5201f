// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The bridge from compiled functions to the call that the worker runs.
#include "api/core.h"

#include "sheaf/internal/call.h"

#include "api/coroutine_loop.h"
#include "api/failures.h"
#include "api/process.h"
#include "api/registry.h"
#include "api/sampling/call_sampler.h"
#include "api/templates.h"
#include "api/worker_handler.h"
#include "sheaf/coroutine.h"
#include "sheaf/serialize.h"
#include "sheaf/task.h"

namespace sheaf::inline v1::internal {
namespace {

// A result did not find room: the call ends with this, whatever the function would say.
struct ResultNotStored {
  CoreError error;
};

void CheckStored(const absl::Status& status) {
  if (status.ok()) return;
  const ErrorInfo info = InfoOf(status, ErrorKind::kObjectStoreFull);
  CoreError error;
  error.kind = static_cast<CoreErrorKind>(info.kind);
  error.message = info.message;
  throw ResultNotStored{std::move(error)};
}

bool IsRetriable(const proto::TaskTemplate& spec) {
  if (!spec.retry_exceptions()) return false;
  const TemplateExtra extra = Deserialize<TemplateExtra>(spec.extra());
  if (extra.retry_rule.empty()) return true;
  const RetryRule* rule = FindRetryRule(extra.retry_rule);
  return rule != nullptr && rule->matches(std::current_exception());
}

}  // namespace

Call::Call(std::shared_ptr<Execution> execution, void* instance)
    : execution_(std::move(execution)), instance_(instance) {}
Call::Call(const Call&) = default;
Call::~Call() = default;

void Call::ExpectArguments(size_t count) const {
  if (execution_->argument_count() == count) return;
  throw InvalidArgumentError("called with " + std::to_string(execution_->argument_count()) +
                             " arguments, has " + std::to_string(count) + " parameters");
}
void ThrowWrongArgument(size_t index, const std::string& type, const SerializationError& error) {
  throw SerializationError("argument " + std::to_string(index + 1) + " (" + type +
                           "): " + error.what());
}
std::string_view Call::bytes(size_t argument) const { return execution_->argument(argument).bytes; }
const Source* Call::source(size_t argument) const {
  return reinterpret_cast<const Source*>(&execution_->argument(argument));
}
size_t Call::returns() const { return execution_->spec().num_returns(); }

void Call::Return(size_t index, std::string_view bytes) {
  CheckStored(execution_->Return(index, bytes));
}

void Call::Return(size_t index, const Encoder& value) {
  const std::span<const ObjectHandle> nested = CoreHandles(value.nested());
  const size_t size = value.size();
  if (size <= kSmallValueBytes) {
    if (!value.has_buffers()) {
      CheckStored(execution_->Return(index, {value.body(), value.body_bytes()}, nested));
      return;
    }
    std::string bytes(size, '\0');
    value.CopyTo(bytes.data());
    CheckStored(execution_->Return(index, bytes, nested));
    return;
  }
  absl::StatusOr<MutableBuffer> buffer = execution_->CreateReturn(index, size, nested);
  CheckStored(buffer.status());
  value.CopyTo(reinterpret_cast<char*>(buffer->data()), buffer->pages() == Pages::kCold);
  CheckStored(execution_->ReturnBuffer(index, *std::move(buffer), nested));
}

bool Call::Yield(const Encoder& value) {
  std::string bytes(value.size(), '\0');
  value.CopyTo(bytes.data());
  const absl::Status status = execution_->Yield(bytes, CoreHandles(value.nested()));
  if (absl::IsCancelled(status)) return false;
  CheckStored(status);
  return true;
}

void Call::SetInstance(void* instance, void (*destroy)(void*)) {
  WorkerHandler::Current()->SetInstance(instance, destroy);
}

void Call::FailWithCurrentException() {
  CoreError error;
  bool retriable = false;
  try {
    throw;
  } catch (const ResultNotStored& failure) {
    error = failure.error;
  } catch (const TaskCancelledError& cancelled) {
    if (execution_->cancelled()) {
      error.kind = CoreErrorKind::kTaskCancelled;
      error.message = std::string(execution_->name()) + " was cancelled while it ran";
    } else {
      error = CurrentExceptionAsError(std::string(execution_->name()));
    }
  } catch (...) {
    error = CurrentExceptionAsError(std::string(execution_->name()));
    retriable = IsRetriable(execution_->spec());
  }
  execution_->Fail(std::move(error), retriable);
}

void StartCoroutine(const Call& call, std::coroutine_handle<> body) {
  WorkerHandler::Current()->StartCoroutine(call, body);
}

void ResumeWhenReady(const Handle& object, std::coroutine_handle<> waiting) {
  RequireHandle(object);
  ThrowIfCancelled();
  Runtime& runtime = TheRuntime();
  runtime.SignalReady(CoreHandle(object), CoroutineLoop::Suspend(waiting));
}

void ResumeAfter(std::chrono::nanoseconds duration, std::coroutine_handle<> waiting) {
  ThrowIfCancelled();
  std::function<void()> resume = CoroutineLoop::Suspend(waiting);
  // The loop lives: this is its thread.
  CoroutineLoop::Current()->loop.lock()->PostAt(DeadlineAfter(duration), std::move(resume));
}

void ThrowIfCancelled() {
  const std::shared_ptr<CoroutineRoot>& root = CoroutineLoop::Current();
  if (root != nullptr && root->cancelled)
    throw TaskCancelledError("the task of this coroutine was cancelled");
}

void RunUntil(std::coroutine_handle<> start, const bool* done) {
  auto root = std::make_shared<CoroutineRoot>();
  root->function = CurrentFunction().function;
  const auto loop = std::make_shared<CoroutineLoop>();
  root->loop = loop;
  root->execution = CurrentExecution();
  if (root->execution != nullptr) root->origin = root->execution->origin();
  loop->Start(root, start);
  loop->Run(
      [&] {
        if (root->execution != nullptr && root->execution->cancelled() && !root->cancelled)
          loop->Cancel(root);
        return *done;
      },
      100 * kMillisecond);
}

}  // namespace sheaf::inline v1::internal

namespace sheaf::inline v1 {

bool IsCancelled() {
  const Execution* execution = internal::CurrentExecution();
  return execution != nullptr && execution->cancelled();
}

}  // namespace sheaf::inline v1
