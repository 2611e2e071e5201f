// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/metrics/ray_names.h"

#include <catch2/catch.hpp>
#include <map>

#include "metrics/counter.h"
#include "metrics/registry.h"

namespace sheaf::cli {
namespace {

using metrics::GaugeId;

// By name, and the values of the labels that are the series' own.
std::map<std::string, double> Served(const metrics::Registry& registry,
                                     const proto::StateAnswer& functions) {
  std::map<std::string, double> out;
  for (const auto& family :
       RayFamilies(registry.Collect(), functions, {"head:6379", "10.0.0.1:1234", true})) {
    for (const auto& metric : family.metric) {
      std::string name = family.name;
      for (const auto& label : metric.label) {
        if (label.name == "SessionName") CHECK(label.value == "head:6379");
        if (label.name == "ip") CHECK(label.value == "10.0.0.1");
        if (label.name == "RayNodeType") CHECK(label.value == "head");
        if (label.name == "Name" || label.name == "State" || label.name == "Location" ||
            label.name == "Component" || label.name == "Source")
          name += "/" + label.value;
      }
      CHECK(out.emplace(name, metric.gauge.value).second);
    }
  }
  return out;
}

void Add(proto::StateAnswer& answer, const std::string& name, uint32_t job, uint64_t finished) {
  proto::FunctionRow& row = *answer.add_functions();
  row.set_name(name);
  row.set_job(job);
  row.set_finished(finished);
}

SCENARIO("figures are served under Ray's names, in Ray's units") {
  metrics::Page page{};
  metrics::Registry registry("test");
  registry.Add(page);
  const auto set = [&page](GaugeId id, int64_t value) { metrics::Gauge(page, id).Set(value); };
  set(GaugeId::kCpuTotal, 40'000);  // Ten-thousandths.
  set(GaugeId::kCpuAvailable, 10'000);
  set(GaugeId::kHostCpu, 2'500);
  set(GaugeId::kHostDiskTotal, 100);
  set(GaugeId::kHostDiskUsed, 30);
  set(GaugeId::kHostGpuMemoryUsed, 3 << 20);
  set(GaugeId::kHostGpuMemoryTotal, 10 << 20);
  set(GaugeId::kStoreSpilledBytes, 7);
  set(GaugeId::kStoreCapacityBytes, 100);
  set(GaugeId::kStoreUsedBytes, 60);
  set(GaugeId::kActorsAlive, 2);
  set(GaugeId::kHostProcessesCpu, 15'000);
  const std::map<std::string, double> served = Served(registry, {});
  CHECK(served.at("ray_node_cpu_count") == 4);
  CHECK(served.at("ray_node_cpu_utilization") == Approx(25));
  CHECK(served.at("ray_node_disk_free") == 70);
  CHECK(served.at("ray_node_gram_used") == 3);
  CHECK(served.at("ray_node_gram_available") == 7);
  CHECK(served.at("ray_resources/USED/CPU") == 3);
  CHECK(served.at("ray_resources/AVAILABLE/object_store_memory") == 40);
  CHECK(served.at("ray_resources/AVAILABLE/CPU") == 1);
  CHECK(served.at("ray_object_store_memory/SPILLED") == 7);
  CHECK(served.at("ray_actors/ALIVE/gcs") == 2);
  CHECK(served.at("ray_component_cpu_percentage/workers") == Approx(150));
}

SCENARIO("tasks are counted by name and state, those of all jobs together") {
  metrics::Registry registry("test");
  proto::StateAnswer functions;
  Add(functions, "f", 1, 3);
  Add(functions, "f", 2, 4);
  proto::FunctionRow& g = *functions.add_functions();
  g.set_name("g");
  g.set_waiting_for_place(5);
  g.set_pushed(3);
  g.set_running(2);
  g.set_failed(1);
  g.set_cancelled(1);
  const std::map<std::string, double> served = Served(registry, functions);
  CHECK(served.at("ray_tasks/f/FINISHED/owner") == 7);
  CHECK(!served.contains("ray_tasks/f/RUNNING/executor"));
  CHECK(served.at("ray_tasks/g/PENDING_NODE_ASSIGNMENT/owner") == 5);
  CHECK(served.at("ray_tasks/g/SUBMITTED_TO_WORKER/owner") == 1);
  CHECK(served.at("ray_tasks/g/RUNNING/executor") == 2);
  CHECK(served.at("ray_tasks/g/FAILED/owner") == 2);
}

SCENARIO("functions beyond the busiest are served together") {
  metrics::Registry registry("test");
  proto::StateAnswer functions;
  for (size_t i = 0; i < kMostRayTaskNames; ++i) Add(functions, "f" + std::to_string(i), 1, 10);
  Add(functions, "rare", 1, 1);
  Add(functions, "rarer", 1, 2);
  const std::map<std::string, double> served = Served(registry, functions);
  CHECK(served.at("ray_tasks/f0/FINISHED/owner") == 10);
  CHECK(!served.contains("ray_tasks/rare/FINISHED/owner"));
  CHECK(served.at("ray_tasks/others/FINISHED/owner") == 3);
}

}  // namespace
}  // namespace sheaf::cli
