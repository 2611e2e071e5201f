// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How a program becomes a driver or a worker.
#include "api/core.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/embedded_node.h"
#include "api/failures.h"
#include "api/process.h"
#include "api/python_worker.h"
#include "api/registry.h"
#include "api/sampling/call_sampler.h"
#include "api/templates.h"
#include "api/worker_handler.h"
#include "base/config.h"
#include "base/failpoint.h"
#include "base/mutex.h"
#include "base/session_directory.h"
#include "base/worker_template.h"
#include "sheaf/sheaf.h"

namespace sheaf::inline v1 {
namespace internal {
namespace {

constexpr Nanos kLeaveTimeout = 5 * kSecond;  // For calls on other threads.

struct Joined {
  Mutex mutex;  // Init and Shutdown are rare; this keeps a mistake from being a crash.
  std::unique_ptr<EmbeddedNode> node ABSL_GUARDED_BY(mutex);
  std::unique_ptr<Runtime> runtime ABSL_GUARDED_BY(mutex);
  pid_t pid ABSL_GUARDED_BY(mutex) = 0;  // A forked child is not joined.
};

Joined& TheJoined() {
  static Joined& joined = *new Joined;
  return joined;
}

void Leave(Joined& joined) ABSL_EXCLUSIVE_LOCKS_REQUIRED(joined.mutex) {
  if (joined.pid != getpid()) return;
  SetRuntime(nullptr);
  joined.runtime->AwaitOutput();
  if (!joined.runtime->Stop(kLeaveTimeout)) {
    std::fprintf(stderr,
                 "sheaf: a thread of this program is inside a call of Sheaf still; what it "
                 "uses stays behind\n");
    static_cast<void>(joined.runtime.release());
  }
  joined.runtime.reset();
  joined.node.reset();
}

void LeaveAtExit() {
  Joined& joined = TheJoined();
  const MutexLock lock(joined.mutex);
  if (joined.runtime != nullptr) Leave(joined);
}

void PrintLines(const proto::LogLines& lines) {
  FILE* const out = lines.error_stream() ? stderr : stdout;
  for (const std::string& line : lines.lines()) {
    std::fprintf(out, "(%s pid=%d) %s\n", lines.name().c_str(), lines.os_pid(), line.c_str());
  }
  std::fflush(out);
}

[[noreturn]] void RunAsWorker(const WorkerStart& start) {
  const absl::StatusOr<Settings> settings = LoadSettings();
  const absl::Status armed =
      settings.ok() ? ArmFailpoints(settings->failpoints, static_cast<uint64_t>(getpid()))
                    : settings.status();
  if (!armed.ok()) {
    std::fprintf(stderr, "sheaf: this worker cannot start: %s\n",
                 std::string(armed.message()).c_str());
    std::exit(1);
  }
  int status = 1;
  {
    WorkerHandler handler;
    RuntimeOptions options;
    options.socket_path = start.socket_path;
    options.driver = false;
    options.worker_token = start.token;
    options.value_bytes = static_cast<uint64_t>(settings->value_bytes);
    options.leak_age = settings->leak_age;
    options.events = settings->events;
    options.on_segment = [&handler, hz = settings->profile_hz](std::shared_ptr<std::byte> segment) {
      handler.SampleCalls(std::move(segment), hz);
    };
    options.handler = &handler;
    options.awaits_calls = true;  // They use the actor, which handler.Stop() destroys.
    options.interrupted = [] { return IsCancelled(); };
    absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Attach(std::move(options));
    if (!runtime.ok()) {
      std::fprintf(stderr, "sheaf: this worker cannot join its node: %s\n",
                   std::string(runtime.status().message()).c_str());
      std::exit(1);
    }
    SetRuntime(runtime->get());
    status = (*runtime)->RunWorker();
    handler.Stop();
    SetRuntime(nullptr);
  }
  std::exit(status);
}

std::vector<std::string> NodeFlags(const InitOptions& options) {
  std::vector<std::string> flags;
  const auto number = [](double value) { return absl::StrCat(value); };
  if (options.cpus > 0) flags.push_back("--num-cpus=" + number(options.cpus));
  if (options.gpus >= 0) flags.push_back("--num-gpus=" + number(options.gpus));
  if (options.memory_bytes > 0) flags.push_back(absl::StrCat("--memory=", options.memory_bytes));
  if (options.store_bytes > 0)
    flags.push_back(absl::StrCat("--object-store-memory=", options.store_bytes));
  if (options.metrics_port > 0)
    flags.push_back(absl::StrCat("--metrics-port=", options.metrics_port));
  if (!options.resources.empty()) {
    flags.push_back(absl::StrCat("--resources=",
                                 absl::StrJoin(options.resources, ",", absl::PairFormatter(":"))));
  }
  if (!options.labels.empty()) {
    flags.push_back(
        absl::StrCat("--labels=", absl::StrJoin(options.labels, ",", absl::PairFormatter("="))));
  }
  return flags;
}

void InitDriver(int argc, char** argv, const InitOptions& options) {
  Joined& joined = TheJoined();
  const MutexLock lock(joined.mutex);
  if (joined.runtime != nullptr && joined.pid == getpid())
    throw SystemError("sheaf::Init was called already");
  const Settings settings = ValueOrThrow(LoadSettings());
  for (const std::string& name : settings.unknown) {
    std::fprintf(stderr,
                 "sheaf: the environment variable %s means nothing to Sheaf: is it misspelt?\n",
                 name.c_str());
  }
  const std::string address = options.address.empty() ? settings.address : options.address;
  std::unique_ptr<EmbeddedNode> node;
  if (address.empty()) {
    node = ValueOrThrow(EmbeddedNode::Start(settings.executable, NodeFlags(options)));
  } else if (NamesHead(address)) {  // A member without resources, which ends with this program.
    node = ValueOrThrow(EmbeddedNode::Start(
        settings.executable, {"--address=" + address, "--num-cpus=0", "--num-gpus=0"}));
  }

  RuntimeOptions to;
  to.socket_path = SocketOf(node != nullptr ? node->session() : address, settings.base_directory);
  to.driver = true;
  to.value_bytes = static_cast<uint64_t>(settings.value_bytes);
  to.leak_age = settings.leak_age;
  to.events = settings.events;
  to.job.set_name_space(options.name_space);
  to.job.set_language(proto::JobStart::CPP);
  to.job.set_default_environment(EnvironmentBytes(options.environment));
  for (int i = 0; i < argc; ++i) to.job.add_argv(argv[i]);
  to.job.set_entrypoint(absl::StrJoin(to.job.argv(), " "));
  if (options.log_to_driver && settings.log_to_driver) to.on_log_lines = PrintLines;
  std::unique_ptr<Runtime> runtime = ValueOrThrow(Runtime::Attach(std::move(to)));

  static const bool at_exit = std::atexit(LeaveAtExit) == 0;
  (void)at_exit;
  joined.node = std::move(node);
  joined.runtime = std::move(runtime);
  joined.pid = getpid();
  SetRuntime(joined.runtime.get());
}

}  // namespace
}  // namespace internal

void Init(int argc, char** argv, const InitOptions& options) {
  const std::string errors = internal::RegistrationErrors();
  if (!errors.empty()) throw InvalidArgumentError(errors);
  internal::SetPythonInterpreter(options.python);
  internal::TakeWorkerLanguage();
  if (std::optional<WorkerStart> start = TakeWorkerStart()) {
    if (start->template_fd >= 0) {
      internal::LearnMainStack();
      start = RunWorkerTemplate(*std::move(start), &fork);
    }
    internal::RunAsWorker(*start);
  }
  internal::InitDriver(argc, argv, options);
}

void Init(const InitOptions& options) { Init(0, nullptr, options); }

void Shutdown() {
  internal::Joined& joined = internal::TheJoined();
  const MutexLock lock(joined.mutex);
  if (joined.runtime == nullptr) return;
  internal::Leave(joined);
}

bool IsInitialized() {
  return internal::current_runtime.load(std::memory_order_acquire) != nullptr;
}

}  // namespace sheaf::inline v1

// The worker of a job of Python that calls a library: python_bindings/sheaf/_worker/start.py opens
// the library and calls this, by its C name. Returns only when this process is no worker.
extern "C" SHEAF_API int sheaf_run_worker() {
  const std::string errors = sheaf::internal::RegistrationErrors();
  if (!errors.empty()) {
    std::fprintf(stderr, "sheaf: %s", errors.c_str());
    return 1;
  }
  sheaf::internal::TakeWorkerLanguage();
  if (const std::optional<sheaf::WorkerStart> start = sheaf::TakeWorkerStart())
    sheaf::internal::RunAsWorker(*start);
  return 1;
}
