// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/config.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "base/file_system.h"

namespace sheaf {
namespace {

absl::StatusOr<Settings> Load(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> names;
  for (const auto& [name, value] : variables) names.push_back(name);
  return LoadSettings(
      [&](const char* name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      },
      names);
}

}  // namespace

SCENARIO("an empty environment gives the defaults") {
  const absl::StatusOr<Settings> settings = Load({});
  REQUIRE(settings.ok());
  CHECK(settings->address.empty());
  CHECK(settings->log_level == LogLevel::kInfo);
  CHECK(settings->memory_limit == 0.95);
  CHECK(settings->value_bytes == 256 << 20);
}

SCENARIO("sessions go where they last: not where a logout or a reboot removes them") {
  // Of these tests' own; on a disk, as /tmp may lie in memory.
  const std::string disk =
      std::filesystem::temp_directory_path() / ("sheaf-config-" + std::to_string(getpid()));
  std::filesystem::create_directories(disk);
  const auto place = [](const std::map<std::string, std::string>& variables) {
    return Load(variables)->base_directory;
  };
  if (KindOfFileSystem(disk) == FileSystemKind::kLocal) {
    CHECK(place({{"XDG_STATE_HOME", disk}, {"XDG_RUNTIME_DIR", "/dev/shm"}}) == disk + "/sheaf");
    CHECK(place({{"XDG_STATE_HOME", disk + "/not/yet"}}) == disk + "/not/yet/sheaf");
    // Somebody else may have prepared it.
    std::filesystem::create_directory(disk + "/sheaf");
    std::filesystem::permissions(disk + "/sheaf", std::filesystem::perms::all);
    CHECK(place({{"XDG_STATE_HOME", disk}}) != disk + "/sheaf");
  }
  std::filesystem::remove_all(disk);
  const std::string in_memory = "/dev/shm/state";
  for (const std::string& chosen :
       {place({}), place({{"XDG_STATE_HOME", in_memory}}), place({{"XDG_STATE_HOME", "relative"}}),
        place({{"XDG_RUNTIME_DIR", "/dev/shm"}, {"HOME", "/nowhere"}})}) {
    INFO(chosen);
    CHECK(KindOfFileSystem(chosen) == FileSystemKind::kLocal);
  }
}

SCENARIO("each setting is read from its variable, and an empty value means the default") {
  const absl::StatusOr<Settings> settings = Load({{"SHEAF_DIR", "/x"},
                                                  {"SHEAF_CPUS", "2.5"},
                                                  {"SHEAF_STORE_BYTES", "1.5GiB"},
                                                  {"SHEAF_LOG_FORMAT", "json"},
                                                  {"SHEAF_LOG_LEVEL", "Debug"},
                                                  {"SHEAF_LOG_TO_DRIVER", "0"},
                                                  {"SHEAF_MEMORY", ""}});
  REQUIRE(settings.ok());
  CHECK(settings->base_directory == "/x");
  CHECK(settings->cpus == 2.5);
  CHECK(settings->store_bytes == 1610612736);
  CHECK(settings->log_level == LogLevel::kDebug);
  CHECK(settings->log_json);
  CHECK_FALSE(settings->log_to_driver);
  CHECK(settings->memory_bytes == 0);
}

SCENARIO(
    "a value that cannot be read is an error that names the variable, the value and the remedy") {
  const absl::Status status = Load({{"SHEAF_CPUS", "two"}}).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(status.message() == "SHEAF_CPUS='two': want a number of CPUs, 0 for all");
  CHECK_FALSE(Load({{"SHEAF_MEMORY_LIMIT", "1.5"}}).ok());
  CHECK_FALSE(Load({{"SHEAF_STORE_BYTES", "-1"}}).ok());
  CHECK_FALSE(Load({{"SHEAF_LOG_LEVEL", "loud"}}).ok());
  CHECK_FALSE(Load({{"SHEAF_LOG_FORMAT", "xml"}}).ok());
  CHECK_FALSE(Load({{"SHEAF_LOG_TO_DRIVER", "perhaps"}}).ok());
}

SCENARIO("a misspelt variable is noticed") {
  const absl::StatusOr<Settings> settings =
      Load({{"SHEAF_CPU", "2"}, {"SHEAF_WORKER", "x"}, {"HOME", "/"}});
  REQUIRE(settings.ok());
  CHECK(settings->unknown == std::vector<std::string>{"SHEAF_CPU"});
}

SCENARIO("a worker learns from its environment that it is one, once") {
  setenv("SHEAF_WORKER", "abc", 1);
  setenv("SHEAF_SOCKET", "/s", 1);
  const std::optional<WorkerStart> start = TakeWorkerStart();
  REQUIRE(start);
  CHECK(start->token == "abc");
  CHECK(start->socket_path == "/s");
  CHECK(start->template_fd == -1);
  CHECK_FALSE(TakeWorkerStart());
  setenv("SHEAF_WORKER_TEMPLATE", "7", 1);
  setenv("SHEAF_SOCKET", "/s", 1);
  setenv("LD_BIND_NOW", "sheaf", 1);
  CHECK(TakeWorkerStart()->template_fd == 7);
  CHECK(getenv("LD_BIND_NOW") == nullptr);
  setenv("SHEAF_WORKER_TEMPLATE", "7", 1);
  setenv("SHEAF_SOCKET", "/s", 1);
  setenv("LD_BIND_NOW", "1", 1);  // Of the user.
  CHECK(TakeWorkerStart()->template_fd == 7);
  CHECK(getenv("LD_BIND_NOW") != nullptr);
  unsetenv("LD_BIND_NOW");
}

SCENARIO("the secret of a cluster that KubeRay made counts where it is asked for, and last") {
  const std::string secret = "a secret of some length";
  const auto token = [&](std::map<std::string, std::string> variables) {
    variables["RAY_AUTH_TOKEN"] = secret + "\n";
    return Load(variables)->ray_auth_token;
  };
  CHECK(token({{"RAY_AUTH_MODE", "token"}}) == secret);
  CHECK(token({}).empty());
  CHECK(token({{"RAY_AUTH_MODE", "disabled"}}).empty());
  CHECK(token({{"RAY_AUTH_MODE", "token"}, {"SHEAF_TOKEN", std::string(64, '0')}}).empty());
  CHECK(token({{"RAY_AUTH_MODE", "token"}, {"SHEAF_TOKEN_FILE", "/etc/token"}}).empty());
  const absl::Status guessed =
      Load({{"RAY_AUTH_MODE", "token"}, {"RAY_AUTH_TOKEN", "secret"}}).status();
  CHECK(guessed.message() ==
        "RAY_AUTH_TOKEN: a token of 6 characters can be guessed; want 16 or more");
  CHECK(Load({{"RAY_AUTH_MODE", "k8s"}}).status().message() ==
        "RAY_AUTH_MODE='k8s': want token or disabled");
}

SCENARIO("a service manager is known by its marks, which children do not see") {
  setenv("NOTIFY_SOCKET", "/run/notify", 1);
  setenv("WATCHDOG_USEC", "30000000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  const ServiceManager manager = TakeServiceManager();
  CHECK(manager.socket == "/run/notify");
  CHECK(manager.watchdog_period == 30 * kSecond);
  CHECK(std::getenv("NOTIFY_SOCKET") == nullptr);
  CHECK(TakeServiceManager().watchdog_period == 0);
  for (const auto& [period, pid] : {std::pair{"30000000", "1"}, {"-1", ""}, {"soon", ""}}) {
    setenv("WATCHDOG_USEC", period, 1);
    setenv("WATCHDOG_PID", pid, 1);
    CHECK(TakeServiceManager().watchdog_period == 0);
  }
}

SCENARIO("sizes are read with and without units") {
  CHECK(*ParseBytes("512") == 512);
  CHECK(*ParseBytes("2GB") == 2'000'000'000);
  CHECK(*ParseBytes(" 64 KiB ") == 65536);
  CHECK(*ParseBytes("1g") == 1 << 30);
  CHECK_FALSE(ParseBytes("").ok());
  CHECK_FALSE(ParseBytes("GiB").ok());
  CHECK_FALSE(ParseBytes("1e30").ok());
  CHECK_FALSE(ParseBytes("nan").ok());
}

}  // namespace sheaf
