// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/session.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/embedded_node.h"
#include "base/config.h"
#include "base/crc32c.h"
#include "base/session_directory.h"
#include "base/worker_template.h"
#include "python_bindings/core/options.h"
#include "python_bindings/core/process.h"
#include "python_bindings/core/stack_sampler.h"
#include "python_bindings/core/stacks.h"
#include "python_bindings/core/tracing.h"
#include "python_bindings/core/worker.h"

namespace sheaf::python {
namespace {

namespace nb = nanobind;

// A node of this process's own, if it started one.
std::unique_ptr<internal::EmbeddedNode>& OwnNode() {
  static auto& node = *new std::unique_ptr<internal::EmbeddedNode>;
  return node;
}

// Of the node that this process joined last.
std::string& SessionDirectory() {
  static auto& directory = *new std::string;
  return directory;
}

std::string TextOf(absl::string_view text) { return {text.data(), text.size()}; }

// Sets ConnectionError, or another exception that fits, and throws it.
[[noreturn]] void ThrowStatus(const absl::Status& status) {
  const std::string words = TextOf(status.message());
  // Ctrl-C may be what ended it.
  if (PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0) throw nb::python_error();
  if (absl::IsUnavailable(status) || absl::IsNotFound(status)) {
    PyErr_SetString(PyExc_ConnectionError, words.c_str());
  } else {
    RaiseStatus(status, ErrorKind::kSystem);
  }
  throw nb::python_error();
}

PythonFunction print_lines("sheaf._internal.log_lines", "print_lines");

void PrintLines(const proto::LogLines& lines) {
  const CallbackScope scope;
  const Owned name = Owned::Steal(NewText(lines.name()));
  const Owned pid = Owned::Steal(PyLong_FromLong(lines.os_pid()));
  const Owned error = Owned::Steal(PyBool_FromLong(lines.error_stream()));
  const Owned list = Owned::Steal(PyList_New(0));
  for (const std::string& line : lines.lines()) {
    const Owned text = Owned::Steal(NewText(line));
    if (text) PyList_Append(list.get(), text.get());
  }
  const Owned done = Owned::Steal(print_lines(name.get(), pid.get(), error.get(), list.get()));
}

struct Joining {
  std::string address;     // Empty: start a node with these flags.
  std::string executable;  // Of `sheaf`, if it is known.
  std::vector<std::string> flags;
  std::string name_space;
  std::vector<std::string> argv;  // How a worker is started.
  std::string entrypoint;
  std::map<std::string, std::string> environment;
  bool log_to_driver;
  std::string metadata;  // proto::JobStart's.
};

absl::StatusOr<std::unique_ptr<Runtime>> Join(const Joining& joining,
                                              const std::string& environment, Settings settings,
                                              std::unique_ptr<internal::EmbeddedNode>* node,
                                              std::string* session) {
  if (joining.address.empty()) {
    absl::StatusOr<std::unique_ptr<internal::EmbeddedNode>> started = internal::EmbeddedNode::Start(
        settings.executable.empty() ? joining.executable : settings.executable, joining.flags,
        DriverInterrupted);
    if (!started.ok()) return started.status();
    *node = *std::move(started);
    *session = (*node)->session();
  } else if (NamesHead(joining.address)) {  // A member without resources, for this program.
    absl::StatusOr<std::unique_ptr<internal::EmbeddedNode>> started = internal::EmbeddedNode::Start(
        settings.executable.empty() ? joining.executable : settings.executable,
        {"--address=" + joining.address, "--num-cpus=0", "--num-gpus=0"}, DriverInterrupted);
    if (!started.ok()) return started.status();
    *node = *std::move(started);
    *session = (*node)->session();
  } else {
    *session = joining.address;
  }
  RuntimeOptions options;
  options.socket_path = SocketOf(*session, settings.base_directory);
  options.driver = true;
  options.value_bytes = static_cast<uint64_t>(settings.value_bytes);
  options.leak_age = settings.leak_age;
  options.events = settings.events;
  options.job.set_name_space(joining.name_space);
  options.job.set_language(proto::JobStart::PYTHON);
  options.job.set_default_environment(environment);
  for (const std::string& argument : joining.argv) options.job.add_argv(argument);
  options.job.set_entrypoint(joining.entrypoint);
  options.job.set_metadata(joining.metadata);
  options.interrupted = DriverInterrupted;
  SessionDirectory() = std::filesystem::path(options.socket_path).parent_path().string();
  options.tell_stacks = TellStacks;
  if (joining.log_to_driver && settings.log_to_driver) options.on_log_lines = PrintLines;
  return Runtime::Attach(std::move(options));
}

// Joins a node as a driver, or starts one; gives its session directory. None: this process has
// joined one.
std::optional<std::string> Init(const nb::dict& options) {
  const JoinTurn turn;
  if (!turn.ok()) throw nb::python_error();
  if (CurrentRuntime() != nullptr) return std::nullopt;
  if (IsForked()) {
    RaiseForked();
    throw nb::python_error();
  }
  if (RefusesToJoin()) throw nb::python_error();
  const auto text = [&](const char* name) { return nb::cast<std::string>(options[name]); };
  const Joining joining{text("address"),
                        text("executable"),
                        nb::cast<std::vector<std::string>>(options["flags"]),
                        text("namespace"),
                        nb::cast<std::vector<std::string>>(options["argv"]),
                        text("entrypoint"),
                        nb::cast<std::map<std::string, std::string>>(options["environment"]),
                        nb::cast<bool>(options["log_to_driver"]),
                        text("metadata")};
  const std::string environment = EnvironmentBytes(joining.environment);
  absl::StatusOr<Settings> settings = LoadSettings();
  if (!settings.ok()) throw nb::value_error(TextOf(settings.status().message()).c_str());
  RememberMainThread();
  if (!PrepareStacks()) throw nb::python_error();
  BeginRuntime();
  std::unique_ptr<internal::EmbeddedNode> node;
  std::string session;
  absl::StatusOr<std::unique_ptr<Runtime>> runtime;
  {
    const WithoutGil free;
    runtime = Join(joining, environment, *std::move(settings), &node, &session);
    if (!runtime.ok()) node.reset();
  }
  if (!runtime.ok()) ThrowStatus(runtime.status());
  if (CurrentRuntime() != nullptr) {  // A signal handler has joined meanwhile, on this thread.
    const WithoutGil free;
    runtime->reset();
    node.reset();
    return std::nullopt;
  }
  SetRuntime(*std::move(runtime), /*worker=*/false);
  OwnNode() = std::move(node);
  return session;
}

void Shutdown() {
  const Leaving leaving;  // Else the call of another thread would begin a node here.
  if (!leaving.is_first()) return;
  EndRuntime();
  std::unique_ptr<internal::EmbeddedNode> node = std::move(OwnNode());
  const WithoutGil free;
  node.reset();
}

// After a fork in user code: the child has no place in the cluster, and harms its parent's in no
// way.
void ForgetAfterFork() {
  ForgetRuntime();
  OwnNode().release();
}

std::optional<WorkerStart>& Started() {
  static auto& start = *new std::optional<WorkerStart>;
  return start;
}

// False: no raylet started this process. A template stays inside and returns in its forks only.
bool EnterWorker() {
  Started() = EnterAsWorker([] {
    const nb::object child = nb::module_::import_("sheaf._internal.preloading").attr("fork")();
    return nb::cast<pid_t>(child);
  });
  return Started().has_value();
}

// The variables of the process as it has them, for os.environ.
std::vector<nb::bytes> Variables() {
  std::vector<nb::bytes> out;
  for (char** variable = environ; *variable != nullptr; ++variable) out.emplace_back(*variable);
  return out;
}

PythonHandler& Handler() {
  static PythonHandler& handler = *new PythonHandler;
  return handler;
}

// Runs calls until the node or the job ends this process; gives the exit status.
int RunWorker() {
  RememberMainThread();
  if (!PrepareStacks()) throw nb::python_error();
  RuntimeOptions options;
  options.socket_path = Started()->socket_path;
  options.driver = false;
  SessionDirectory() = std::filesystem::path(options.socket_path).parent_path().string();
  options.worker_token = Started()->token;
  if (const absl::StatusOr<Settings> settings = LoadSettings(); settings.ok()) {
    options.value_bytes = static_cast<uint64_t>(settings->value_bytes);
    options.leak_age = settings->leak_age;
    options.events = settings->events;
    options.on_segment = [hz = settings->profile_hz](std::shared_ptr<std::byte> segment) {
      PrepareSampler(std::move(segment), hz);
    };
  }
  options.handler = &Handler();
  options.interrupted = WorkerInterrupted;
  options.tell_stacks = TellStacks;
  absl::StatusOr<std::unique_ptr<Runtime>> runtime;
  {
    const WithoutGil free;
    runtime = Runtime::Attach(std::move(options));
  }
  if (!runtime.ok()) ThrowStatus(runtime.status());
  Runtime& worker = **runtime;
  SetRuntime(*std::move(runtime), /*worker=*/true);
  const WithoutGil free;
  return worker.RunWorker();
}

void CallLast(const nb::callable& function) {
  const WithGil gil;
  try {
    function();
  } catch (nb::python_error& error) {  // Of the user's: the actor ends all the same.
    error.discard_as_unraisable(function);
  }
}

void ExitActor(double patience_s, const nb::callable& before) {
  absl::Status status;
  {
    const WithoutGil free;
    status = CurrentRuntime()->ExitActor(static_cast<Nanos>(patience_s * kSecond),
                                         [&before] { CallLast(before); });
  }
  if (!status.ok()) ThrowStatus(status);
}

void EndCalls(double patience_s, const nb::callable& before) {
  const WithoutGil free;
  CurrentRuntime()->EndCalls(static_cast<Nanos>(patience_s * kSecond),
                             [&before] { CallLast(before); });
}

void WatchLoop(int descriptor) {
  const absl::Status status = CurrentRuntime()->WatchLoop(descriptor);
  if (!status.ok()) ThrowStatus(status);
}

}  // namespace

void BindSession(nb::module_& module) {
  module.def("init", &Init, nb::arg("options"),
             "Joins a node as a driver, or starts one; gives its session directory. None: this "
             "process has joined one already.");
  module.def("shutdown", &Shutdown, "Leaves the node, and ends it if init started it.");
  module.def("leave_for_good", &LeaveForGood,
             "From here on this process joins nothing any more: the interpreter ends.");
  module.def("hold_interrupts", &HoldInterrupts,
             "From here on Ctrl-C ends the process when the interpreter is done, without words.");
  module.def("restore_interrupts", &RestoreInterrupts, "From here on Ctrl-C is what it was.");
  module.def("forget_after_fork", &ForgetAfterFork,
             "In a forked child: it is no driver or worker.");
  module.def(
      "is_initialized", [] { return CurrentRuntime() != nullptr; },
      "Whether this process has joined a node.");
  module.def("generation", &RuntimeGeneration, "Counts the runtimes of this process; 0: none now.");
  module.def("call_generation", &CallGeneration,
             "The same, with a number for the placement group that calls made now inherit.");
  module.def("is_worker", &IsWorker, "Whether this process runs tasks.");
  module.def("enter_worker", &EnterWorker,
             "Takes this process's marks as a worker; False: it is none.");
  module.def("run_worker", &RunWorker,
             "Runs calls until this process shall end; gives the exit status.");
  module.def("watch_loop", &WatchLoop, nb::arg("descriptor"),
             "From here on take_calls returns when the descriptor of an async actor's loop is "
             "readable.");
  module.def(
      "take_calls",
      [](nb::handle timeout) { return nb::steal(Handler().TakeCalls(timeout.ptr())); },
      nb::arg("timeout").none(),
      "The calls that an async actor's loop shall start, for which it waits; None: no more come.");
  module.def(
      "session_directory", [] { return SessionDirectory(); },
      "The directory of the session that this process joined; empty: none.");
  module.def(
      "crc32c", [](const nb::bytes& data) { return Crc32c({data.c_str(), data.size()}); },
      "CRC-32C of the bytes.");
  module.def("end_calls", &EndCalls, nb::arg("patience_s"), nb::arg("before"),
             "In an actor's process that ends with an error: no call begins any more; `before` is "
             "called, then the calls that it has made have so long to end.");
  module.def("exit_actor", &ExitActor, nb::arg("patience_s"), nb::arg("before"),
             "Ends the actor that this process is, for good; its calls have so long to end. Then "
             "`before` is called, and those that it has made come to their ends.");
  module.def(
      "follow_spans", [] { FollowsSpans() = true; },
      "From here on calls look for a span of the user's.");
  module.def("variables", &Variables, "The environment of the process, as NAME=value bytes.");
}

}  // namespace sheaf::python
