// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "metrics/catalog.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <sstream>

namespace sheaf::metrics {
namespace {

// A row forgotten at the end of a table is a null name; one in the middle shifts the rest, which
// the spot checks see.
void CheckTable(std::span<const Description> rows) {
  std::set<std::string> series;
  std::set<std::string> finished;
  std::string previous;
  for (const Description& row : rows) {
    REQUIRE(row.name != nullptr);
    INFO(row.name);
    CHECK(std::string(row.name).starts_with("sheaf_"));
    CHECK(std::string(row.help).ends_with("."));
    CHECK(series.insert(std::string(row.name) + "{" + row.label_value).second);
    if (row.name != previous) {
      CHECK(finished.count(row.name) == 0);  // All series of a name stand beside each other.
      finished.insert(previous);
      previous = row.name;
    }
  }
}

TEST_CASE("every metric has a name, a help sentence and its own series") {
  CheckTable(Counters());
  CheckTable(Gauges());
  CheckTable(Histograms());
}

TEST_CASE("the order of the tables is the order of the enumerations") {
  auto counter = [](CounterId id) {
    return std::string(Counters()[static_cast<size_t>(id)].name) + "/" +
           Counters()[static_cast<size_t>(id)].label_value;
  };
  CHECK(counter(CounterId::kTasksSubmitted) == "sheaf_tasks_total/submitted");
  CHECK(counter(CounterId::kPushesSent) == "sheaf_pushes_total/sent");
  CHECK(counter(CounterId::kReconstructions) == "sheaf_reconstructions_total/");
  CHECK(counter(CounterId::kBadFrames) == "sheaf_bad_frames_total/");
  CHECK(counter(CounterId::kLeasesGranted) == "sheaf_leases_total/granted");
  CHECK(counter(CounterId::kWorkerDeathsOther) == "sheaf_worker_deaths_total/other");
  CHECK(counter(CounterId::kLogBytesLeftOut) == "sheaf_log_left_out_bytes_total/");
  CHECK(counter(CounterId::kStoreFull) == "sheaf_store_full_total/");
  CHECK(counter(CounterId::kGcsCommits) == "sheaf_gcs_commits_total/");
  auto gauge = [](GaugeId id) {
    return std::string(Gauges()[static_cast<size_t>(id)].name) + "/" +
           Gauges()[static_cast<size_t>(id)].label_value;
  };
  CHECK(gauge(GaugeId::kSchedulerQueue) == "sheaf_scheduler_queue_length/");
  CHECK(gauge(GaugeId::kWorkersActor) == "sheaf_workers/actor");
  CHECK(gauge(GaugeId::kGpuAvailable) == "sheaf_gpus/available");
  CHECK(gauge(GaugeId::kStoreObjects) == "sheaf_store_objects/");
  CHECK(gauge(GaugeId::kBuildInfo) == "sheaf_build_info/");
  CHECK(std::string(Histograms()[static_cast<size_t>(HistogramId::kObjectBytes)].name) ==
        "sheaf_object_size_bytes");
}

TEST_CASE("docs/metrics.md says what the catalog says") {
  std::ifstream file(SHEAF_SOURCE_DIR "/docs/metrics.md");
  std::stringstream text;
  text << file.rdbuf();
  CHECK(text.str() == CatalogAsMarkdown());
}

}  // namespace
}  // namespace sheaf::metrics
