// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/metrics/ray_names.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

namespace sheaf::cli {
namespace {

using Label = prometheus::ClientMetric::Label;

struct Pair {
  const char* name = "";
  const char* value = "";
};

// A gauge of ours under a name of Ray's: (value - less) * scale, with these labels, if there are any.
struct Renamed {
  const char* name;
  Pair own;     // Its name, and the value of its label, if it has one.
  Pair less{};  // The same of what is subtracted, if anything is.
  Pair label{};
  Pair other_label{};
  double scale = 1;
};

constexpr double kPercent = 100;
constexpr double kPerMiB = 1.0 / (1 << 20);
constexpr Pair kCpus{"sheaf_cpus", "total"}, kFreeCpus{"sheaf_cpus", "available"};
constexpr Pair kGpus{"sheaf_gpus", "total"}, kFreeGpus{"sheaf_gpus", "available"};
constexpr Pair kDisk{"sheaf_host_disk_bytes", "total"}, kUsedDisk{"sheaf_host_disk_bytes", "used"};
constexpr Pair kGpuMemory{"sheaf_host_gpu_memory_bytes", "total"},
    kUsedGpuMemory{"sheaf_host_gpu_memory_bytes", "used"};
constexpr Pair kStore{"sheaf_store_capacity_bytes"}, kUsedStore{"sheaf_store_used_bytes"};
constexpr Pair kAllGpus{"GpuIndex", "all"};
constexpr Pair kUsed{"State", "USED"}, kAvailable{"State", "AVAILABLE"};
constexpr Pair kCpu{"Name", "CPU"}, kGpu{"Name", "GPU"},
    kStoreMemory{"Name", "object_store_memory"};
constexpr Pair kOfGcs{"Source", "gcs"};
constexpr Pair kWorkers{"Component", "workers"};

// Series of one name stand beside each other.
constexpr std::array kGauges = {
    Renamed{"ray_node_cpu_count", kCpus},
    Renamed{"ray_node_cpu_utilization", {"sheaf_host_cpu_ratio"}, {}, {}, {}, kPercent},
    Renamed{"ray_node_mem_used", {"sheaf_host_memory_bytes", "used"}},
    Renamed{"ray_node_mem_total", {"sheaf_host_memory_bytes", "total"}},
    Renamed{"ray_node_disk_usage", kUsedDisk},
    Renamed{"ray_node_disk_free", kDisk, kUsedDisk},
    Renamed{"ray_node_network_receive_speed", {"sheaf_host_network_bytes_per_second", "received"}},
    Renamed{"ray_node_network_send_speed", {"sheaf_host_network_bytes_per_second", "sent"}},
    Renamed{"ray_node_gpus_available", kGpus, {}, kAllGpus},
    Renamed{"ray_node_gpus_utilization", {"sheaf_host_gpu_ratio"}, {}, kAllGpus, {}, kPercent},
    Renamed{"ray_node_gram_used", kUsedGpuMemory, {}, kAllGpus, {}, kPerMiB},
    Renamed{"ray_node_gram_available", kGpuMemory, kUsedGpuMemory, kAllGpus, {}, kPerMiB},
    Renamed{"ray_resources", kCpus, kFreeCpus, kUsed, kCpu},
    Renamed{"ray_resources", kFreeCpus, {}, kAvailable, kCpu},
    Renamed{"ray_resources", kGpus, kFreeGpus, kUsed, kGpu},
    Renamed{"ray_resources", kFreeGpus, {}, kAvailable, kGpu},
    Renamed{"ray_resources", kUsedStore, {}, kUsed, kStoreMemory},
    Renamed{"ray_resources", kStore, kUsedStore, kAvailable, kStoreMemory},
    Renamed{"ray_object_store_memory", kUsedStore, {}, {"Location", "MMAP_SHM"}},
    Renamed{"ray_object_store_memory", {"sheaf_store_spilled_bytes"}, {}, {"Location", "SPILLED"}},
    Renamed{"ray_object_store_memory", {"sheaf_private_bytes"}, {}, {"Location", "WORKER_HEAP"}},
    Renamed{"ray_actors", {"sheaf_actors", "alive"}, {}, {"State", "ALIVE"}, kOfGcs},
    Renamed{"ray_actors", {"sheaf_actors", "pending"}, {}, {"State", "PENDING_CREATION"}, kOfGcs},
    Renamed{"ray_actors", {"sheaf_actors", "restarting"}, {}, {"State", "RESTARTING"}, kOfGcs},
    Renamed{"ray_actors", {"sheaf_actors", "dead"}, {}, {"State", "DEAD"}, kOfGcs},
    Renamed{
        "ray_actors", {"sheaf_workers", "actor"}, {}, {"State", "ALIVE"}, {"Source", "executor"}},
    Renamed{"ray_placement_groups", {"sheaf_placement_groups"}, {}, {"State", "CREATED"}},
    Renamed{"ray_placement_groups", {"sheaf_placement_groups_pending"}, {}, {"State", "PENDING"}},
    Renamed{
        "ray_component_cpu_percentage", {"sheaf_node_processes_cpus"}, {}, kWorkers, {}, kPercent},
    Renamed{"ray_component_rss_bytes", {"sheaf_node_processes_memory_bytes"}, {}, kWorkers},
};

// By name and the value of the label, if there is one.
using OwnValues = std::map<std::pair<std::string_view, std::string_view>, double>;

OwnValues ValuesOf(const std::vector<prometheus::MetricFamily>& own) {
  OwnValues values;
  for (const prometheus::MetricFamily& family : own) {
    if (family.type != prometheus::MetricType::Gauge) continue;
    for (const prometheus::ClientMetric& metric : family.metric) {
      const std::string_view label =
          metric.label.empty() ? std::string_view() : std::string_view(metric.label.front().value);
      values[{family.name, label}] = metric.gauge.value;
    }
  }
  return values;
}

class Families {
 public:
  explicit Families(const RayLabels& labels)
      : common_{{"SessionName", labels.session_name},
                {"ip", labels.address.substr(0, labels.address.rfind(':'))},
                {"RayNodeType", labels.is_head ? "head" : "worker"},
                {"IsHeadNode", labels.is_head ? "true" : "false"}} {}

  void Add(const std::string& name, std::vector<Label> labels, double value) {
    if (families_.empty() || families_.back().name != name) {
      families_.push_back({name, "As Ray calls it.", prometheus::MetricType::Gauge, {}});
    }
    prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label = std::move(labels);
    metric.label.insert(metric.label.end(), common_.begin(), common_.end());
    metric.gauge.value = value;
  }
  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  const std::vector<Label> common_;
  std::vector<prometheus::MetricFamily> families_;
};

// Of one function. SUBMITTED_TO_WORKER may be below 0 on one node, as who runs a call counts it as
// running, and who made it as pushed; boards add the nodes up.
using TaskStates = std::array<double, 6>;
constexpr std::array<const char*, 6> kTaskStates = {"PENDING_ARGS_AVAIL",
                                                    "PENDING_NODE_ASSIGNMENT",
                                                    "SUBMITTED_TO_WORKER",
                                                    "RUNNING",
                                                    "FINISHED",
                                                    "FAILED"};

TaskStates StatesOf(const proto::FunctionRow& row) {
  return {static_cast<double>(row.waiting_for_arguments()),
          static_cast<double>(row.waiting_for_place()),
          static_cast<double>(row.pushed()) - static_cast<double>(row.running()),
          static_cast<double>(row.running()),
          static_cast<double>(row.finished()),
          static_cast<double>(row.failed() + row.cancelled())};
}

void AddTasks(const proto::StateAnswer& answer, Families& families) {
  std::map<std::string, TaskStates> by_name;  // Of all jobs.
  for (const proto::FunctionRow& row : answer.functions()) {
    TaskStates& sum = by_name[row.name()];
    const TaskStates states = StatesOf(row);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += states[i];
  }
  std::vector<std::pair<double, const std::string*>> busiest;
  for (const auto& [name, states] : by_name) {
    double calls = 0;
    for (const double count : states) calls += count;
    busiest.emplace_back(-calls, &name);
  }
  std::sort(busiest.begin(), busiest.end());
  TaskStates others{};
  const auto add = [&families](const std::string& name, const TaskStates& states) {
    for (size_t i = 0; i < states.size(); ++i) {
      if (states[i] == 0) continue;
      const std::string state = kTaskStates[i];
      families.Add("ray_tasks",
                   {{"Name", name},
                    {"State", state},
                    {"Source", state == "RUNNING" ? "executor" : "owner"},
                    {"IsRetry", "0"}},
                   states[i]);
    }
  };
  for (size_t i = 0; i < busiest.size(); ++i) {
    const TaskStates& states = by_name.at(*busiest[i].second);
    if (i < kMostRayTaskNames) {
      add(*busiest[i].second, states);
    } else {
      for (size_t s = 0; s < others.size(); ++s) others[s] += states[s];
    }
  }
  add("others", others);
}

}  // namespace

std::vector<prometheus::MetricFamily> RayFamilies(const std::vector<prometheus::MetricFamily>& own,
                                                  const proto::StateAnswer& functions,
                                                  const RayLabels& labels) {
  const OwnValues values = ValuesOf(own);
  const auto value = [&values](const Pair& own) {
    const auto found = values.find({own.name, own.value});
    return found == values.end() ? 0 : found->second;
  };
  Families families(labels);
  for (const Renamed& gauge : kGauges) {
    std::vector<Label> series;
    for (const Pair& label : {gauge.label, gauge.other_label})
      if (*label.name != '\0') series.push_back({label.name, label.value});
    families.Add(gauge.name, std::move(series),
                 (value(gauge.own) - value(gauge.less)) * gauge.scale);
  }
  AddTasks(functions, families);
  return families.Take();
}

}  // namespace sheaf::cli
