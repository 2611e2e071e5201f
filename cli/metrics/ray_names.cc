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

// A gauge of ours under a name of Ray's: value * scale, with that label, if there is one.
struct Renamed {
  const char* name;
  const char* label;
  const char* label_value;
  const char* own;
  const char* own_label_value;
  double scale = 1;
  const char* less = "";  // The series of `own` that is subtracted.
};

constexpr double kPercent = 100;
constexpr double kPerMiB = 1.0 / (1 << 20);

constexpr std::array kGauges = {
    Renamed{"ray_node_cpu_count", "", "", "sheaf_cpus", "total"},
    Renamed{"ray_node_cpu_utilization", "", "", "sheaf_host_cpu_ratio", "", kPercent},
    Renamed{"ray_node_mem_used", "", "", "sheaf_host_memory_bytes", "used"},
    Renamed{"ray_node_mem_total", "", "", "sheaf_host_memory_bytes", "total"},
    Renamed{"ray_node_disk_usage", "", "", "sheaf_host_disk_bytes", "used"},
    Renamed{"ray_node_disk_free", "", "", "sheaf_host_disk_bytes", "total", 1, "used"},
    Renamed{"ray_node_network_receive_speed", "", "", "sheaf_host_network_bytes_per_second",
            "received"},
    Renamed{"ray_node_network_send_speed", "", "", "sheaf_host_network_bytes_per_second", "sent"},
    Renamed{"ray_node_gpus_utilization", "GpuIndex", "all", "sheaf_host_gpu_ratio", "", kPercent},
    Renamed{"ray_node_gram_used", "GpuIndex", "all", "sheaf_host_gpu_memory_bytes", "used",
            kPerMiB},
    Renamed{"ray_resources", "State", "USED", "sheaf_cpus", "total", 1, "available"},
    Renamed{"ray_resources", "State", "AVAILABLE", "sheaf_cpus", "available"},
    Renamed{"ray_resources", "State", "USED", "sheaf_gpus", "total", 1, "available"},
    Renamed{"ray_resources", "State", "AVAILABLE", "sheaf_gpus", "available"},
    Renamed{"ray_object_store_memory", "Location", "MMAP_SHM", "sheaf_store_used_bytes", ""},
    Renamed{"ray_object_store_memory", "Location", "SPILLED", "sheaf_store_spilled_bytes", ""},
    Renamed{"ray_object_store_memory", "Location", "WORKER_HEAP", "sheaf_private_bytes", ""},
    Renamed{"ray_actors", "State", "ALIVE", "sheaf_actors", "alive"},
    Renamed{"ray_actors", "State", "PENDING_CREATION", "sheaf_actors", "pending"},
    Renamed{"ray_actors", "State", "RESTARTING", "sheaf_actors", "restarting"},
    Renamed{"ray_actors", "State", "DEAD", "sheaf_actors", "dead"},
    Renamed{"ray_placement_groups", "State", "CREATED", "sheaf_placement_groups", ""},
    Renamed{"ray_placement_groups", "State", "PENDING", "sheaf_placement_groups_pending", ""},
    Renamed{"ray_component_cpu_percentage", "Component", "workers", "sheaf_node_processes_cpus", "",
            kPercent},
    Renamed{"ray_component_rss_bytes", "Component", "workers", "sheaf_node_processes_memory_bytes",
            ""},
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
      families.Add("ray_tasks", {{"Name", name}, {"State", kTaskStates[i]}, {"IsRetry", "0"}},
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
  const auto value = [&values](const char* name, const char* label_value) {
    const auto found = values.find({name, label_value});
    return found == values.end() ? 0 : found->second;
  };
  Families families(labels);
  for (const Renamed& gauge : kGauges) {
    double number = value(gauge.own, gauge.own_label_value);
    if (*gauge.less != '\0') number -= value(gauge.own, gauge.less);
    std::vector<Label> series;
    if (*gauge.label != '\0') series.push_back({gauge.label, gauge.label_value});
    if (std::string_view(gauge.name) == "ray_resources") {
      series.push_back({"Name", std::string_view(gauge.own) == "sheaf_cpus" ? "CPU" : "GPU"});
    }
    families.Add(gauge.name, std::move(series), number * gauge.scale);
  }
  AddTasks(functions, families);
  return families.Take();
}

}  // namespace sheaf::cli
