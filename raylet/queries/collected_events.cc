// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/queries/collected_events.h"

#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "metrics/counter.h"
#include "object_store/machine_memory.h"

namespace sheaf {
namespace {

using metrics::GaugeId;
using telemetry::HostSeries;

constexpr double kFixedPoint = 1e4;  // As the catalog has them.

struct HostGauge {
  HostSeries series;
  GaugeId gauge;
  double scale = 1;
};
constexpr std::array<HostGauge, telemetry::kHostSeries> kGauges = {{
    {HostSeries::kCpu, GaugeId::kHostCpu, kFixedPoint},
    {HostSeries::kSteal, GaugeId::kHostSteal, kFixedPoint},
    {HostSeries::kIoWait, GaugeId::kHostIoWait, kFixedPoint},
    {HostSeries::kLoad, GaugeId::kHostLoad, kFixedPoint},
    {HostSeries::kCpuStall, GaugeId::kHostCpuStall, kFixedPoint},
    {HostSeries::kMemoryStall, GaugeId::kHostMemoryStall, kFixedPoint},
    {HostSeries::kIoStall, GaugeId::kHostIoStall, kFixedPoint},
    {HostSeries::kMemoryUsed, GaugeId::kHostMemoryUsed},
    {HostSeries::kMemoryTotal, GaugeId::kHostMemoryTotal},
    {HostSeries::kDiskUsed, GaugeId::kHostDiskUsed},
    {HostSeries::kDiskTotal, GaugeId::kHostDiskTotal},
    {HostSeries::kDiskRead, GaugeId::kHostDiskRead},
    {HostSeries::kDiskWritten, GaugeId::kHostDiskWritten},
    {HostSeries::kReceived, GaugeId::kHostReceived},
    {HostSeries::kSent, GaugeId::kHostSent},
    {HostSeries::kProcesses, GaugeId::kHostProcesses},
    {HostSeries::kProcessesCpu, GaugeId::kHostProcessesCpu, kFixedPoint},
    {HostSeries::kProcessesMemory, GaugeId::kHostProcessesMemory},
    {HostSeries::kGpu, GaugeId::kHostGpu, kFixedPoint},
    {HostSeries::kGpuMemoryUsed, GaugeId::kHostGpuMemoryUsed},
    {HostSeries::kGpuMemoryTotal, GaugeId::kHostGpuMemoryTotal},
}};

std::unique_ptr<telemetry::HostFigures> FiguresOf(const std::string& disk) {
  return std::make_unique<telemetry::HostFigures>(telemetry::HostFigures::Options{
      .disk = disk,
      .memory =
          [] {
            const MachineMemory memory = ReadMachineMemory();
            return std::pair(memory.limit_bytes, memory.available_bytes);
          },
      .gpus = [] { return telemetry::GpuFigures::Load(); }});
}

}  // namespace

CollectedEvents::CollectedEvents(Executor& loop, const std::string& disk,
                                 telemetry::SpanQueue* spans)
    : loop_(loop), collector_(FiguresOf(disk), spans) {}

void CollectedEvents::PublishHost(metrics::Page& page) {
  page.counter(metrics::CounterId::kEventsLost)
      .store(collector_.EventsLost(), std::memory_order_relaxed);
  const telemetry::HostSample sample = collector_.LastHost();
  for (const HostGauge& gauge : kGauges) {
    const float value = sample[static_cast<size_t>(gauge.series)];
    if (!std::isnan(value)) {
      metrics::Gauge(page, gauge.gauge).Set(static_cast<int64_t>(value * gauge.scale));
    }
  }
}

}  // namespace sheaf
