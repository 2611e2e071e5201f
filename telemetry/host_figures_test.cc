// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/host_figures.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/testing/scratch_directory_for_test.h"
#include "telemetry/series_ring.h"

namespace sheaf::telemetry {
namespace {

float At(const HostSample& sample, HostSeries series) {
  return sample[static_cast<size_t>(series)];
}

// A machine of files.
struct Machine {
  ScratchDirectory root;
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::trunc) << text;
  }
  HostFigures Figures() const {
    return HostFigures({.root = root.path() + "/", .disk = root.path(), .memory = [] {
                          return std::pair<int64_t, int64_t>(1000, 250);
                        }});
  }
};

std::string ProcessStat(int user, int system, int pages) {
  return absl::StrCat("7 (a) b) c) S 1 1 1 0 -1 0 0 0 0 0 ", user, " ", system,
                      " 0 0 20 0 1 0 100 1000000 ", pages, " 0 0");
}

TEST_CASE("rates are told from the second look on, by what has passed between the two") {
  Machine machine;
  machine.Write("proc/stat", "cpu  100 0 100 700 50 0 0 50 0 0\ncpu0 1 2 3\n");
  machine.Write("proc/diskstats",
                "   8       0 sda 1 0 100 0 1 0 200 0 0 0 0\n"
                "   8       1 sda1 1 0 100 0 1 0 200 0 0 0 0\n"
                "   7       0 loop0 1 0 100 0 1 0 200 0 0 0 0\n");
  machine.Write("proc/net/dev",
                "Inter-|   Receive  |  Transmit\n face |bytes packets\n"
                "    lo: 99 0 0 0 0 0 0 0 99 0 0 0 0 0 0 0\n"
                "  eth0:1000 0 0 0 0 0 0 0 500 0 0 0 0 0 0 0\n");
  machine.Write("proc/7/stat", ProcessStat(10, 10, 3));
  HostFigures figures = machine.Figures();
  const HostSample first = figures.Look(kSecond, {7, 8});
  CHECK(std::isnan(At(first, HostSeries::kCpu)));
  CHECK(std::isnan(At(first, HostSeries::kReceived)));
  CHECK(At(first, HostSeries::kProcesses) == 1);  // 8 is gone.
  CHECK(At(first, HostSeries::kProcessesCpu) == 0);

  machine.Write("proc/stat", "cpu  150 0 150 700 100 0 0 100 0 0\n");
  machine.Write("proc/diskstats", "   8       0 sda 1 0 104 0 1 0 208 0 0 0 0\n");
  machine.Write("proc/net/dev", "  eth0:3000 0 0 0 0 0 0 0 400 0 0 0 0 0 0 0\n");
  const auto ticks = static_cast<int>(sysconf(_SC_CLK_TCK));
  machine.Write("proc/7/stat", ProcessStat(10 + ticks, 10 + 2 * ticks, 5));
  const HostSample second = figures.Look(3 * kSecond, {7});
  CHECK(At(second, HostSeries::kCpu) == Approx(0.5));  // 100 of 200 ticks.
  CHECK(At(second, HostSeries::kSteal) == Approx(0.25));
  CHECK(At(second, HostSeries::kIoWait) == Approx(0.25));
  CHECK(At(second, HostSeries::kDiskRead) == Approx(4 * 512 / 2));
  CHECK(At(second, HostSeries::kDiskWritten) == Approx(8 * 512 / 2));
  CHECK(At(second, HostSeries::kReceived) == Approx(1000));
  CHECK(At(second, HostSeries::kSent) == 0);  // It was set back.
  CHECK(At(second, HostSeries::kProcessesCpu) == Approx(1.5));
  CHECK(figures.processes().at(7).cpus == Approx(1.5));
  CHECK(figures.processes().at(7).memory_bytes == 5 * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
}

TEST_CASE("amounts are told at once, and what the kernel does not tell is unknown") {
  Machine machine;
  machine.Write("proc/pressure/memory",
                "some avg10=12.50 avg60=0.00 avg300=0.00 total=0\nfull avg10=1.00 avg60=0\n");
  machine.Write("proc/loadavg", "1.25 0.5 0.1 1/100 1234\n");
  HostFigures figures = machine.Figures();
  const HostSample sample = figures.Look(kSecond, {});
  CHECK(At(sample, HostSeries::kMemoryStall) == Approx(0.125));
  CHECK(std::isnan(At(sample, HostSeries::kCpuStall)));
  CHECK(At(sample, HostSeries::kLoad) == Approx(1.25));
  CHECK(At(sample, HostSeries::kMemoryTotal) == 1000);
  CHECK(At(sample, HostSeries::kMemoryUsed) == 750);
  CHECK(At(sample, HostSeries::kDiskTotal) > 0);
  CHECK(std::isnan(At(sample, HostSeries::kGpu)));
}

TEST_CASE("files that are not as they shall be are no figures") {
  CHECK(ParseCpuTicks("").all == 0);
  CHECK(ParseCpuTicks("cpu x y").all == 0);
  CHECK(ParseDiskBytes("8 0 sda 1 2\n\n").first == 0);
  CHECK(ParseNetworkBytes("eth0 no colon\n:::\n").first == 0);
  CHECK(std::isnan(ParseStall("some avg10=x")));
  CHECK_FALSE(ParseProcess("7 no name"));
  CHECK_FALSE(ParseProcess("7 (a) S 1"));
  CHECK(ParseDiskBytes("259 0 nvme0n1 1 0 2 0 1 0 4 0\n259 1 nvme0n1p1 1 0 2 0 1 0 4 0").second ==
        4 * 512);
}

TEST_CASE("a process that ends while it is looked at has no figures") {
  const Machine machine;
  machine.Write("proc/7/stat", ProcessStat(1, 1, 1));
  std::filesystem::create_directories(machine.root / "proc/8/stat");  // Opens, and cannot be read.
  HostFigures figures = machine.Figures();
  figures.Look(kSecond, {7, 8});
  CHECK(figures.processes().count(7) == 1);
  CHECK(figures.processes().count(8) == 0);
}

TEST_CASE("this machine tells of itself") {
  HostFigures figures({});
  figures.Look(0, {getpid()});
  const HostSample sample = figures.Look(kSecond, {getpid()});
  CHECK(At(sample, HostSeries::kProcessesMemory) > 100'000);
  CHECK(At(sample, HostSeries::kLoad) >= 0);
  CHECK(At(sample, HostSeries::kDiskUsed) > 0);
}

TEST_CASE("each series has a name of its own, by which it is found") {
  for (size_t i = 0; i < kHostSeries; ++i) {
    const auto series = static_cast<HostSeries>(i);
    INFO(NameOf(series));
    CHECK_FALSE(NameOf(series).empty());
    CHECK(FindSeries(NameOf(series)) == series);
  }
  CHECK(FindSeries("colour") == std::nullopt);
}

TEST_CASE("a machine without NVIDIA's library has no GPUs to tell of") {
  CHECK(GpuFigures::Load("libno-such-library.so.1") == nullptr);
  CHECK(GpuFigures::Load("libc.so.6") == nullptr);  // It lacks the functions.
}

HostSample SampleOf(float value) {
  HostSample sample;
  sample.fill(value);
  return sample;
}

TEST_CASE("the ring keeps an hour, with what nobody looked at as unknown") {
  SeriesRing ring;
  constexpr Nanos kP = SeriesRing::kPeriod;
  CHECK(ring.Read(HostSeries::kCpu, 0).values.empty());
  ring.Add(10 * kP, SampleOf(1));
  ring.Add(10 * kP + 1, SampleOf(9));  // In the same period.
  ring.Add(12 * kP, SampleOf(3));
  SeriesRing::Points points = ring.Read(HostSeries::kCpu, 0);
  CHECK(points.first == 10 * kP);
  REQUIRE(points.values.size() == 3);
  CHECK(points.values[0] == 1);
  CHECK(std::isnan(points.values[1]));
  CHECK(points.values[2] == 3);
  CHECK(ring.Read(HostSeries::kCpu, 11 * kP + 1).values.size() == 1);
  CHECK(ring.Read(HostSeries::kCpu, 13 * kP).values.empty());

  const auto last = static_cast<int64_t>(12 + SeriesRing::kPoints);
  for (int64_t i = 13; i <= last; ++i) ring.Add(i * kP, SampleOf(static_cast<float>(i)));
  points = ring.Read(HostSeries::kCpu, 0);
  REQUIRE(points.values.size() == SeriesRing::kPoints);
  CHECK(points.values.front() == 13);
  CHECK(points.values.back() == static_cast<float>(last));
  ring.Add((last + 100'000) * kP, SampleOf(7));  // A machine that slept.
  points = ring.Read(HostSeries::kCpu, 0);
  CHECK(points.values.size() == SeriesRing::kPoints);
  CHECK(std::isnan(points.values.front()));
  CHECK(points.values.back() == 7);
}

}  // namespace
}  // namespace sheaf::telemetry
