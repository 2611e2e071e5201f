// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/config.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file_system.h"
#include "base/status_macros.h"

extern char** environ;

namespace sheaf {
namespace {

// Read when a group of CUDA arrays is formed, not with the settings.
constexpr char kNcclVariable[] = "SHEAF_NCCL_LIB";
constexpr char kCudaVariable[] = "SHEAF_CUDA_LIB";
constexpr size_t kLeastRayToken = 16;  // Characters.

absl::string_view Abseil(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Bad(const char* name, const std::string& value, const char* want) {
  return absl::InvalidArgumentError(absl::StrCat(name, "='", value, "': want ", want));
}

// Reads variables one by one and remembers which it knows.
class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  void Text(const char* name, std::string& out) {
    if (std::optional<std::string> value = Take(name)) out = *value;
  }
  void Number(const char* name, double low, double high, const char* want, double& out) {
    double number = 0;
    if (std::optional<std::string> value = Take(name)) {
      if (absl::SimpleAtod(*value, &number) && number >= low && number <= high) {
        out = number;
      } else {
        Fail(Bad(name, *value, want));
      }
    }
  }
  void Bytes(const char* name, int64_t& out) {
    if (std::optional<std::string> value = Take(name)) {
      if (absl::StatusOr<int64_t> bytes = ParseBytes(*value); bytes.ok()) {
        out = *bytes;
      } else {
        Fail(Bad(name, *value, "a size such as 512MiB or 2GiB"));
      }
    }
  }
  void Switch(const char* name, bool& out) {
    if (std::optional<std::string> value = Take(name)) {
      if (!absl::SimpleAtob(*value, &out)) Fail(Bad(name, *value, "0 or 1"));
    }
  }
  // true: the second.
  void Choice(const char* name, absl::string_view first, absl::string_view second, bool& out) {
    if (std::optional<std::string> value = Take(name)) {
      if (*value == first || *value == second) {
        out = *value == second;
      } else {
        Fail(Bad(name, *value, absl::StrCat(first, " or ", second).c_str()));
      }
    }
  }
  void Level(const char* name, LogLevel& out) {
    constexpr std::array<absl::string_view, 5> kNames = {"debug", "info", "warning", "error",
                                                         "off"};
    if (std::optional<std::string> value = Take(name)) {
      const auto found = std::find(kNames.begin(), kNames.end(), absl::AsciiStrToLower(*value));
      if (found != kNames.end()) {
        out = static_cast<LogLevel>(found - kNames.begin());
      } else {
        Fail(Bad(name, *value, "debug, info, warning, error or off"));
      }
    }
  }
  bool Knows(const std::string& name) const {
    return std::find(known_.begin(), known_.end(), name) != known_.end();
  }
  const absl::Status& status() const { return status_; }

 private:
  std::optional<std::string> Take(const char* name) {
    known_.push_back(name);
    std::optional<std::string> value = environment_(name);
    return value && !value->empty() ? value : std::nullopt;
  }
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  const Environment& environment_;
  std::vector<std::string> known_ = {
      kWorkerVariable, kSocketVariable, kTemplateVariable, kJobVariable,
      kRuntimeEnvironmentVariable, kNcclVariable, kCudaVariable,
      // Of submitted commands: raylet/entrypoints/entrypoint_processes.cc.
      "SHEAF_PYTHON", "SHEAF_SUBMISSION", "SHEAF_AS_RAY"};
  absl::Status status_;
};

// Sessions can be kept there: this user may write, and a reboot or a logout leaves it as it is.
bool IsLasting(const std::string& base) {
  if (KindOfFileSystem(base) != FileSystemKind::kLocal) return false;
  struct stat info;
  if (lstat(base.c_str(), &info) == 0) {
    return S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0;
  }
  std::filesystem::path parent = std::filesystem::path(base).parent_path();
  while (access(parent.c_str(), F_OK) != 0 && parent.has_relative_path()) {
    parent = parent.parent_path();
  }
  return access(parent.c_str(), W_OK | X_OK) == 0;
}

// The first place that lasts. The state of a head must be there after a logout, which removes
// XDG_RUNTIME_DIR, and after a reboot; the sockets of its node lie beside it, as they must last as
// long. What lasts nowhere is for nodes that are no heads.
std::string DefaultBaseDirectory(const Environment& environment) {
  const auto directory = [&environment](const char* name) {
    const std::string value = environment(name).value_or("");
    return absl::StartsWith(value, "/") ? value : "";
  };
  std::vector<std::string> places;
  if (const std::string state = directory("XDG_STATE_HOME"); !state.empty()) {
    places.push_back(state + "/sheaf");
  }
  if (geteuid() == 0) {
    places.push_back("/var/lib/sheaf");
  } else if (const std::string home = directory("HOME"); !home.empty()) {
    places.push_back(home + "/.local/state/sheaf");
  }
  places.push_back(absl::StrCat("/var/tmp/sheaf-", geteuid()));
  for (const std::string& place : places) {
    if (IsLasting(place)) return place;
  }
  const std::string runtime = directory("XDG_RUNTIME_DIR");
  if (!runtime.empty() && access(runtime.c_str(), W_OK) == 0) return runtime + "/sheaf";
  return absl::StrCat("/tmp/sheaf-", geteuid());
}

// As KubeRay sets it for all of a cluster's containers.
absl::Status ReadRayToken(const Environment& environment, Settings& settings) {
  const std::string mode = environment("RAY_AUTH_MODE").value_or("");
  if (!mode.empty() && mode != "token" && mode != "disabled") {
    return Bad("RAY_AUTH_MODE", mode, "token or disabled");
  }
  // Others that count before it.
  if (mode != "token" || !settings.token.empty() || !settings.token_file.empty()) {
    return absl::OkStatus();
  }
  const std::string token = environment("RAY_AUTH_TOKEN").value_or("");
  settings.ray_auth_token = std::string(absl::StripAsciiWhitespace(token));
  if (settings.ray_auth_token.empty() || settings.ray_auth_token.size() >= kLeastRayToken) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("RAY_AUTH_TOKEN: a token of ", settings.ray_auth_token.size(),
                   " characters can be guessed; want ", kLeastRayToken, " or more"));
}

std::optional<std::string> ProcessEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace

absl::StatusOr<Settings> LoadSettings(const Environment& environment,
                                      const std::vector<std::string>& names) {
  Settings settings;
  Reader reader(environment);
  settings.base_directory = DefaultBaseDirectory(environment);
  if (std::optional<std::string> gpus = environment("CUDA_VISIBLE_DEVICES"))
    settings.visible_gpus = *gpus;
  reader.Text("SHEAF_ADDRESS", settings.address);
  reader.Text("SHEAF_DIR", settings.base_directory);
  reader.Switch("SHEAF_STATE_IN_MEMORY", settings.state_in_memory);
  reader.Text("SHEAF_EXECUTABLE", settings.executable);
  reader.Number("SHEAF_CPUS", 0, 1e6, "a number of CPUs, 0 for all", settings.cpus);
  reader.Number("SHEAF_GPUS", -1, 1e4, "a number of GPUs, -1 for what is found", settings.gpus);
  reader.Bytes("SHEAF_MEMORY", settings.memory_bytes);
  reader.Bytes("SHEAF_STORE_BYTES", settings.store_bytes);
  reader.Bytes("SHEAF_VALUE_BYTES", settings.value_bytes);
  reader.Number("SHEAF_LEAK_AGE", 0, 1e9, "a number of seconds", settings.leak_age);
  reader.Number("SHEAF_MEMORY_LIMIT", 0, 1, "a part of memory from 0 to 1", settings.memory_limit);
  reader.Bytes("SHEAF_WORKER_LOG_BYTES", settings.worker_log_bytes);
  reader.Number("SHEAF_SILENCE_LIMIT", 20, 1e9, "a number of seconds, at least 20",
                settings.silence_limit);
  double hours = static_cast<double>(settings.log_hours);
  reader.Number("SHEAF_LOG_HOURS", 0, 1e6, "a number of hours", hours);
  settings.log_hours = static_cast<int64_t>(hours);
  reader.Bytes(kEnvironmentBytesVariable, settings.environment_bytes);
  reader.Switch("SHEAF_EVENTS", settings.events);
  double profile_hz = static_cast<double>(settings.profile_hz);
  reader.Number("SHEAF_PROFILE_HZ", 0, 1000, "a number of times a second", profile_hz);
  settings.profile_hz = static_cast<int64_t>(profile_hz);
  reader.Switch("SHEAF_LOG_TO_DRIVER", settings.log_to_driver);
  reader.Switch("SHEAF_WORKER_TEMPLATES", settings.worker_template);
  reader.Text("SHEAF_TOKEN", settings.token);
  reader.Text("SHEAF_TOKEN_FILE", settings.token_file);
  SHEAF_RETURN_IF_ERROR(ReadRayToken(environment, settings));
  reader.Text("SHEAF_METRICS_TOKEN_FILE", settings.metrics_token_file);
  reader.Text("SHEAF_TLS_DIR", settings.tls_directory);
  reader.Text("SHEAF_TLS_PEER_NAME", settings.tls_peer_name);
  reader.Choice("SHEAF_LOG_FORMAT", "text", "json", settings.log_json);
  reader.Level("SHEAF_LOG_LEVEL", settings.log_level);
  reader.Text("SHEAF_FAILPOINT", settings.failpoints);
  SHEAF_RETURN_IF_ERROR(reader.status());
  for (const std::string& name : names) {
    if (absl::StartsWith(name, "SHEAF_") && !reader.Knows(name)) settings.unknown.push_back(name);
  }
  return settings;
}

absl::StatusOr<Settings> LoadSettings() {
  std::vector<std::string> names;
  for (const std::string& text : OwnEnvironment()) names.push_back(text.substr(0, text.find('=')));
  return LoadSettings(ProcessEnvironment, names);
}

LibraryPaths NamedLibraries() {
  return {ProcessEnvironment(kNcclVariable).value_or(""),
          ProcessEnvironment(kCudaVariable).value_or("")};
}

std::optional<WorkerStart> TakeWorkerStart() {
  const std::optional<std::string> token = ProcessEnvironment(kWorkerVariable);
  const std::optional<std::string> commands = ProcessEnvironment(kTemplateVariable);
  WorkerStart start;
  start.socket_path = ProcessEnvironment(kSocketVariable).value_or("");
  unsetenv(kWorkerVariable);
  unsetenv(kTemplateVariable);
  unsetenv(kSocketVariable);
  if (commands && ProcessEnvironment(kBindNowVariable) == kBindNow) unsetenv(kBindNowVariable);
  if (start.socket_path.empty() || (!token && !commands)) return std::nullopt;
  start.token = token.value_or("");
  if (commands && !absl::SimpleAtoi(*commands, &start.template_fd)) return std::nullopt;
  return start;
}

ServiceManager TakeServiceManager() {
  ServiceManager manager;
  manager.socket = ProcessEnvironment("NOTIFY_SOCKET").value_or("");
  const std::string period = ProcessEnvironment("WATCHDOG_USEC").value_or("");
  const std::string whose = ProcessEnvironment("WATCHDOG_PID").value_or("");
  int64_t microseconds = 0;
  if ((whose.empty() || whose == std::to_string(getpid())) &&
      absl::SimpleAtoi(period, &microseconds) && microseconds > 0 &&
      microseconds <= kForever / kMicrosecond) {
    manager.watchdog_period = microseconds * kMicrosecond;
  }
  for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
  return manager;
}

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    all.emplace_back(*entry);
  }
  return all;
}

void SetVariable(const std::string& name, const std::string& value) {
  setenv(name.c_str(), value.c_str(), 1);
}

absl::StatusOr<int64_t> ParseBytes(std::string_view text) {
  struct Unit {
    const char* name;
    double bytes;
  };
  constexpr std::array<Unit, 12> kUnits = {{{"kib", 1024.0},
                                            {"mib", 1024.0 * 1024},
                                            {"gib", 1024.0 * 1024 * 1024},
                                            {"tib", 1024.0 * 1024 * 1024 * 1024},
                                            {"kb", 1e3},
                                            {"mb", 1e6},
                                            {"gb", 1e9},
                                            {"tb", 1e12},
                                            {"k", 1024.0},
                                            {"m", 1024.0 * 1024},
                                            {"g", 1024.0 * 1024 * 1024},
                                            {"b", 1.0}}};
  const std::string lower = absl::AsciiStrToLower(absl::StripAsciiWhitespace(Abseil(text)));
  absl::string_view number = lower;
  double factor = 1;
  for (const Unit& unit : kUnits) {
    if (!absl::ConsumeSuffix(&number, unit.name)) continue;
    factor = unit.bytes;
    break;
  }
  double value = 0;
  if (!absl::SimpleAtod(number, &value) || !(value >= 0) || value * factor > 9e18) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Abseil(text), "': want a size such as 512MiB"));
  }
  return static_cast<int64_t>(value * factor);
}

}  // namespace sheaf
