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
#include "base/log.h"

namespace sheaf {

struct Settings {
  // SHEAF_ADDRESS: the session directory of a node to join. Empty: start a node.
  std::string address;
  // SHEAF_DIR: holds sessions, with the state of heads, and the token. Else the first of these that
  // is on a local disk and may be written: $XDG_STATE_HOME/sheaf; ~/.local/state/sheaf, of root
  // /var/lib/sheaf; /var/tmp/sheaf-<uid>. Where none is, $XDG_RUNTIME_DIR/sheaf or
  // /tmp/sheaf-<uid>.
  std::string base_directory;
  // SHEAF_STATE_IN_MEMORY: a head may keep its state where a reboot empties it.
  bool state_in_memory = false;
  // SHEAF_EXECUTABLE: the `sheaf` that Init starts. Empty: beside the library, or in PATH.
  std::string executable;
  // SHEAF_CPUS: of the node; 0: what the kernel lets this process use.
  double cpus = 0;
  // SHEAF_GPUS: of the node; below 0: what is found.
  double gpus = -1;
  // CUDA_VISIBLE_DEVICES: as CUDA reads it; "unset": all.
  std::string visible_gpus = "unset";
  // SHEAF_MEMORY: for tasks that ask for memory; 0: 70 % of what is there.
  int64_t memory_bytes = 0;
  // SHEAF_STORE_BYTES: of the arena; 0: 30 % of what is there.
  int64_t store_bytes = 0;
  // SHEAF_VALUE_BYTES: of the small values (up to 64 KiB each) that one process keeps in its own
  // memory: puts, results, arguments. Those beyond it go to the store. 0: all do, from 1 KiB on.
  int64_t value_bytes = 256 << 20;
  // SHEAF_MEMORY_LIMIT: the part of memory above which a worker is killed; 0: never.
  double memory_limit = 0.95;
  // SHEAF_WORKER_LOG_BYTES: of one worker's output file, then it is rotated.
  int64_t worker_log_bytes = 16 << 20;
  // SHEAF_SILENCE_LIMIT: seconds, from 20, that both another node and the head may be silent before
  // what waits for that node ends in an error (and stays pending). A head starts again in less.
  double silence_limit = 60;
  // SHEAF_LOG_HOURS: output files of ended workers are deleted after this time.
  int64_t log_hours = 24;
  // SHEAF_ENVIRONMENT_BYTES: unpacked directories and packages of runtime environments on the node.
  int64_t environment_bytes = int64_t{10} << 30;
  // SHEAF_LOG_TO_DRIVER: workers' output appears at the driver.
  bool log_to_driver = true;
  // SHEAF_WORKER_TEMPLATES: C++ workers fork from a first one; 0: each is exec'd.
  bool worker_template = true;
  // SHEAF_TOKEN: of the cluster, 64 hexadecimal digits. Empty: from the file.
  std::string token;
  // SHEAF_TOKEN_FILE: holds the token. Empty: `token` in the base directory.
  std::string token_file;
  // SHEAF_METRICS_TOKEN_FILE: who says what it holds may read metrics. Empty: this machine alone
  // may.
  std::string metrics_token_file;
  // SHEAF_TLS_DIR: with ca.pem, node.pem and node.key. Empty: no TLS.
  std::string tls_directory;
  // SHEAF_TLS_PEER_NAME: a name that stands in each node's certificate. Empty: any.
  std::string tls_peer_name;
  // SHEAF_LOG_LEVEL: of debug, info, warning, error, off.
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
inline constexpr char kJobVariable[] =
    "SHEAF_JOB";  // Session and job: stays set, marks all descendants of a job's workers.
inline constexpr char kEnvironmentBytesVariable[] =
    "SHEAF_ENVIRONMENT_BYTES";  // The node's setting, for who makes environments.
inline constexpr char kRuntimeEnvironmentVariable[] =
    "SHEAF_RUNTIME_ENVIRONMENT";  // Hexadecimal; stays set.

}  // namespace sheaf
