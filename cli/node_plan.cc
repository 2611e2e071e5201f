// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/node_plan.h"

#include <ctime>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/config.h"
#include "base/resources.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "base/version.h"
#include "object_store/arena/arena_memory.h"
#include "object_store/machine_memory.h"
#include "raylet/host/machine.h"
#include "rpc/security/credentials.h"
#include "shm/attach.h"

namespace sheaf::cli {
namespace {

constexpr size_t kLeastMetricsToken = 16;  // Characters.
constexpr double kTaskMemoryPart = 0.7;    // Of what is there, for tasks that ask for memory.

absl::Status Bad(const char* flag, const std::string& value, const char* want) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " '", value, "': want ", want));
}

absl::Status ReadNumber(const char* flag, const std::string& text, double high, double& out) {
  if (text.empty()) return absl::OkStatus();
  double number = 0;
  if (!absl::SimpleAtod(text, &number) || !(number >= 0 && number <= high)) {
    return Bad(flag, text, "a number, 0 or more");
  }
  out = number;
  return absl::OkStatus();
}

absl::Status ReadBytes(const char* flag, const std::string& text, int64_t& out) {
  if (text.empty()) return absl::OkStatus();
  const absl::StatusOr<int64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) return Bad(flag, text, "a size such as 512MiB or 2GiB");
  out = *bytes;
  return absl::OkStatus();
}

absl::StatusOr<Labels> ParseLabels(const std::string& text) {
  Labels labels;
  for (absl::string_view entry : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    if (pair.first.empty() || entry.find('=') == absl::string_view::npos) {
      return Bad("--labels", std::string(entry), "KEY=VALUE,...");
    }
    if (!IsUtf8(pair.first)) return Bad("--labels", pair.first, "keys in UTF-8");
    if (!labels.emplace(pair).second) return Bad("--labels", pair.first, "each key once");
  }
  return labels;
}

// As it travels: what Prometheus reads from its credentials_file.
absl::StatusOr<std::string> ReadMetricsToken(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSecretFile(path);
  if (!text.ok()) {
    return absl::Status(
        text.status().code(),
        absl::StrCat("--metrics-token-file ", path, ": ", text.status().message(),
                     absl::IsNotFound(text.status())
                         ? "; make one with: (umask 077; openssl rand -hex 32 > " + path + ")"
                         : ""));
  }
  std::string token(absl::StripAsciiWhitespace(*text));
  if (token.size() < kLeastMetricsToken) {
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics-token-file ", path, ": a token of ", token.size(),
                     " characters can be guessed; want ", kLeastMetricsToken, " or more"));
  }
  return token;
}

// An amount of a known resource, with the name of its flag in errors.
absl::Status SetAmount(const char* flag, KnownResource name, double amount, Resources& out) {
  const absl::StatusOr<Amount> fixed =
      AmountFromDouble(kKnownResourceNames[static_cast<size_t>(name)], amount);
  if (!fixed.ok())
    return absl::InvalidArgumentError(absl::StrCat(flag, ": ", fixed.status().message()));
  out.Set(name, *fixed);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NodePlan> PlanNode(const NodeFlags& flags, const Settings& given) {
  NodePlan plan;
  plan.settings = given;
  Settings& settings = plan.settings;
  if (!flags.directory.empty()) settings.base_directory = flags.directory;
  if (!flags.log_format.empty()) settings.log_json = flags.log_format == "json";
  SHEAF_RETURN_IF_ERROR(ReadNumber("--num-cpus", flags.cpus, 1e6, settings.cpus));
  SHEAF_RETURN_IF_ERROR(ReadNumber("--num-gpus", flags.gpus, 1e4, settings.gpus));
  SHEAF_RETURN_IF_ERROR(ReadBytes("--memory", flags.memory, settings.memory_bytes));
  SHEAF_RETURN_IF_ERROR(
      ReadBytes("--object-store-memory", flags.store_memory, settings.store_bytes));

  const MachineMemory memory = ReadMachineMemory();
  RayletProcessOptions& raylet = plan.raylet;
  raylet.store_bytes = settings.store_bytes > 0 ? static_cast<uint64_t>(settings.store_bytes)
                                                : DefaultStoreCapacity(memory);
  const double task_memory = settings.memory_bytes > 0
                                 ? static_cast<double>(settings.memory_bytes)
                                 : static_cast<double>(memory.limit_bytes) * kTaskMemoryPart;
  const std::vector<uint32_t> gpus = FindGpus(settings.visible_gpus);
  const double gpu_count = settings.gpus >= 0 ? settings.gpus : static_cast<double>(gpus.size());

  RayletOptions& node = raylet.raylet;
  const absl::StatusOr<Resources> custom = ParseResources(flags.resources);
  if (!custom.ok())
    return absl::InvalidArgumentError(absl::StrCat("--resources: ", custom.status().message()));
  for (const std::string_view name : kKnownResourceNames) {
    if (custom->Get(name) != 0) {
      return Bad("--resources", std::string(name), "only names that have no flag of their own");
    }
  }
  node.totals = *custom;
  // Of no CPUs 0 is meant, if it was said; else all.
  const double cpus = settings.cpus > 0 || !flags.cpus.empty() ? settings.cpus : UsableCpus();
  SHEAF_RETURN_IF_ERROR(SetAmount("--num-cpus", KnownResource::kCpu, cpus, node.totals));
  SHEAF_RETURN_IF_ERROR(SetAmount("--num-gpus", KnownResource::kGpu, gpu_count, node.totals));
  SHEAF_RETURN_IF_ERROR(SetAmount("--memory", KnownResource::kMemory, task_memory, node.totals));
  SHEAF_RETURN_IF_ERROR(SetAmount("--object-store-memory", KnownResource::kObjectStoreMemory,
                                  static_cast<double>(raylet.store_bytes), node.totals));
  for (uint32_t gpu = 0; gpu < gpu_count; ++gpu) {
    // More than were found may be said, for tests of scheduling; they get the numbers behind.
    node.gpu_ids.push_back(gpu < gpus.size() ? gpus[gpu] : gpu);
  }
  SHEAF_ASSIGN_OR_RETURN(node.labels, ParseLabels(flags.labels));
  node.host_name = HostName();
  node.version = std::string(kSheafVersion);
  node.features = ProbeKernelFeatures();
  node.unix_ns_at_zero = UnixNow() - MonotonicNow();
  node.silence_limit = static_cast<Nanos>(settings.silence_limit * kSecond);

  raylet.memory_watch.limit = settings.memory_limit;
  raylet.worker_log_bytes = settings.worker_log_bytes;
  raylet.log_events = settings.log_json;
  raylet.log_keep = settings.log_hours * 3600 * kSecond;
  raylet.log_to_driver = settings.log_to_driver;
  raylet.worker_templates = settings.worker_template;
  raylet.environment_bytes = settings.environment_bytes;
  raylet.variables = OwnEnvironment();
  if (!flags.metrics_address.empty()) plan.metrics.address = flags.metrics_address;
  plan.metrics.port = static_cast<uint16_t>(flags.metrics_port);
  plan.metrics.host_name = node.host_name;
  const std::string& token_file =
      flags.metrics_token_file.empty() ? settings.metrics_token_file : flags.metrics_token_file;
  if (!token_file.empty()) {
    SHEAF_ASSIGN_OR_RETURN(plan.metrics.token, ReadMetricsToken(token_file));
  } else if (!flags.metrics_address.empty()) {  // On loopback without one, as ever.
    plan.metrics.token = settings.ray_auth_token;
  }
  return plan;
}

}  // namespace sheaf::cli
