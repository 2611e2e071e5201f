// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The settings that a process takes from its environment: the only file that reads environment
// variables. Options given in code or on the command line override them. Each setting is one
// variable, SHEAF_ plus its name in capitals.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/log.h"

namespace sheaf {

struct Settings {
  // SHEAF_ADDRESS: the node that a program joins: its session directory, or "latest". Empty: the
  // program starts a node of its own.
  std::string address;
  // SHEAF_DIR: where sessions, with the state of heads, and the token lie. Empty: in the first of
  // these that is on a local disk and may be written: $XDG_STATE_HOME/sheaf; ~/.local/state/sheaf,
  // of root /var/lib/sheaf; /var/tmp/sheaf-<uid>. Where none is, $XDG_RUNTIME_DIR/sheaf or
  // /tmp/sheaf-<uid>.
  std::string base_directory;
  // SHEAF_STATE_IN_MEMORY: 1: a head may keep its state where a reboot empties it.
  bool state_in_memory = false;
  // SHEAF_EXECUTABLE: the program `sheaf` that Init starts. Empty: the one beside the library, or
  // in PATH.
  std::string executable;
  // SHEAF_CPUS: how many CPUs a node has for tasks; 0: as many as the kernel lets it use.
  double cpus = 0;
  // SHEAF_GPUS: how many GPUs a node has for tasks; below 0: as many as are found.
  double gpus = -1;
  // CUDA_VISIBLE_DEVICES: which GPUs a node has, as CUDA reads it; "unset": all.
  std::string visible_gpus = "unset";
  // SHEAF_MEMORY: how much memory a node has for tasks that ask for some; 0: 70 % of the machine's.
  int64_t memory_bytes = 0;
  // SHEAF_STORE_BYTES: the size of a node's object store in shared memory; 0: 30 % of the machine's
  // memory.
  int64_t store_bytes = 0;
  // SHEAF_VALUE_BYTES: how much of small values (up to 64 KiB each) one process keeps in its own
  // memory: puts, results, arguments. Those beyond it go to the store. 0: all do, from 1 KiB on.
  int64_t value_bytes = 256 << 20;
  // SHEAF_LEAK_AGE: for how many seconds an object must have been there, with nothing but references
  // of its owner to it, to be listed as one that may have been forgotten.
  double leak_age = 600;
  // SHEAF_MEMORY_LIMIT: the part of the machine's memory above which the largest worker is killed;
  // 0: none is ever.
  double memory_limit = 0.95;
  // SHEAF_WORKER_LOG_BYTES: how long a worker's output file grows before it is rotated.
  int64_t worker_log_bytes = 16 << 20;
  // SHEAF_SILENCE_LIMIT: for how many seconds, at least 20, another node and the head may both be
  // silent before what waits for that node ends in an error. It stays pending and may be waited for
  // again. A head starts again in less.
  double silence_limit = 60;
  // SHEAF_LOG_HOURS: after how many hours the output files of ended workers are deleted.
  int64_t log_hours = 24;
  // SHEAF_ENVIRONMENT_BYTES: how much a node keeps of unpacked directories and packages of runtime
  // environments.
  int64_t environment_bytes = int64_t{10} << 30;
  // SHEAF_EVENTS: 1: what calls did and how long they took is recorded, for lists of ended calls and
  // timelines; 0: nothing is.
  bool events = true;
  // SHEAF_PROFILE_HZ: how often a second a worker looks where the time of its calls goes, in C++ of
  // processor time; for `sheaf profile`; 0: never.
  int64_t profile_hz = 50;
  // SHEAF_LOG_TO_DRIVER: 1: what workers print appears at the driver; 0: it is in their files
  // alone.
  bool log_to_driver = true;
  // SHEAF_WORKER_TEMPLATES: 1: C++ workers fork from a first one; 0: each is started by itself.
  bool worker_template = true;
  // SHEAF_TOKEN: the token of the cluster, 64 hexadecimal digits. Empty: it is read from a file.
  std::string token;
  // SHEAF_TOKEN_FILE: the file that holds the token. Empty: `token` in the directory of sessions.
  std::string token_file;
  // RAY_AUTH_TOKEN: where RAY_AUTH_MODE is `token`, as KubeRay sets them, and none of the two above
  // is: the secret, of 16 characters at least, that the cluster's token is made of, and that
  // requests over HTTP carry.
  std::string ray_auth_token;
  // SHEAF_METRICS_TOKEN_FILE: the file with the token that readers of metrics on other machines
  // must send. Empty: this machine alone may read them.
  std::string metrics_token_file;
  // SHEAF_TLS_DIR: the folder with ca.pem, node.pem and node.key. Empty: nodes speak without TLS.
  std::string tls_directory;
  // SHEAF_TLS_PEER_NAME: a name that the certificate of each node must carry. Empty: any will do.
  std::string tls_peer_name;
  // SHEAF_LOG_FORMAT: text, or json: daemons write their logs as JSON with the names of the Elastic
  // Common Schema, and nodes what workers and jobs print, into events.ndjson.
  bool log_json = false;
  // SHEAF_LOG_LEVEL: what daemons write into their logs: debug, info, warning, error or off.
  LogLevel log_level = LogLevel::kInfo;
  // SHEAF_FAILPOINT: failures on purpose, for tests (base/failpoint.h).
  std::string failpoints;
  // Variables that begin with SHEAF_ and mean nothing: misspelt ones.
  std::vector<std::string> unknown;
};

// The value of a variable, or nullopt.
using Environment = std::function<std::optional<std::string>(const char* name)>;

// kInvalidArgument: a value that cannot be read; the text names the variable, the value and what is
// wanted.
absl::StatusOr<Settings> LoadSettings();
absl::StatusOr<Settings> LoadSettings(const Environment& environment,
                                      const std::vector<std::string>& names);

// How the raylet started this process: as a worker, or as the template that workers fork from
// (base/worker_template.h).
struct WorkerStart {
  std::string token;        // For the attach handshake; empty in a template.
  std::string socket_path;  // Of the raylet.
  int template_fd = -1;     // Not negative: be a template, commands come from here.
};
// nullopt: this process was not started by a raylet. Removes the marks from the environment, so
// that programs which user code starts are not taken for workers. Call it once, from Init, before
// threads exist.
std::optional<WorkerStart> TakeWorkerStart();

// The service manager (systemd) that started this process and wants to hear of it.
struct ServiceManager {
  std::string socket{};       // NOTIFY_SOCKET. Empty: nobody does.
  Nanos watchdog_period = 0;  // WATCHDOG_USEC, if WATCHDOG_PID is this process or none. 0: none.
};
// Removes the marks from the environment: they are not for the children of this process. Call it
// once, before threads exist.
ServiceManager TakeServiceManager();

// The libraries that a user names instead of having them found (collective/nccl/dynamic_library.h).
struct LibraryPaths {
  std::string nccl;  // SHEAF_NCCL_LIB: libnccl.so.2. Empty: it is looked for.
  std::string cuda;  // SHEAF_CUDA_LIB: libcuda.so.1, the driver's. Empty: it is looked for.
};
LibraryPaths NamedLibraries();  // Of this process's environment, read anew by each call.

// All variables of this process, "NAME=value".
std::vector<std::string> OwnEnvironment();

// Sets a variable of this process (a forked worker's, before its threads exist).
void SetVariable(const std::string& name, const std::string& value);

// "512", "64KiB", "1.5GiB", "2GB". kInvalidArgument: not a size, or negative.
absl::StatusOr<int64_t> ParseBytes(std::string_view text);

inline constexpr char kWorkerVariable[] = "SHEAF_WORKER";  // The token of a worker.
inline constexpr char kSocketVariable[] = "SHEAF_SOCKET";  // The raylet's socket.
inline constexpr char kTemplateVariable[] =
    "SHEAF_WORKER_TEMPLATE";  // The descriptor of a template's commands.
// Of a template: the loader finds all functions at once, not each worker those that it calls. With
// kBindNow it is Sheaf's, and TakeWorkerStart removes it.
inline constexpr char kBindNowVariable[] = "LD_BIND_NOW";
inline constexpr char kBindNow[] = "sheaf";
inline constexpr char kJobVariable[] =
    "SHEAF_JOB";  // Session and job: stays set, marks all descendants of a job's workers.
inline constexpr char kEnvironmentBytesVariable[] =
    "SHEAF_ENVIRONMENT_BYTES";  // The node's setting, for who makes environments.
inline constexpr char kRuntimeEnvironmentVariable[] =
    "SHEAF_RUNTIME_ENVIRONMENT";  // Hexadecimal; stays set.

}  // namespace sheaf
