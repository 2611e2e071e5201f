// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Collective operations on CUDA arrays through NCCL, by the method of nccl-tests: warm-up, then
// operations back to back, of which the average counts. Ranks are threads of this process, one for
// each GPU; with one GPU, one rank, or with NCCL_MULTI_RANK_GPU_ENABLE=1 the given number.
//   bench_nccl [--json FILE] [--ranks N] [--folder FOLDER] [--largest BYTES]
// algbw = bytes / time; busbw = algbw * 2 (n - 1) / n for all_reduce, (n - 1) / n for
// reduce_scatter, all_gather and all_to_all, 1 for broadcast. `bytes` are those of the larger
// array. An operation is one call of Sheaf: it includes that the ranks compare what they called,
// and that the caller waits for the device. Without a GPU the table is empty.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/collective_rounds.h"
#include "collective/fake_rendezvous.h"
#include "collective/nccl/nccl_communicator.h"

namespace {

using sheaf::CollectiveKind;
using sheaf::DataType;
using sheaf::Operation;
using sheaf::ReduceOp;

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
                                     CollectiveKind::kAllGather, CollectiveKind::kBroadcast,
                                     CollectiveKind::kAllToAll};
constexpr size_t kSizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20};

struct Row {
  CollectiveKind kind;
  size_t bytes;
  rounds::Figure figure;
};

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << "bench_nccl: " << status << "\n";
  std::_Exit(1);
}

// The larger array of `kind` has `bytes`.
Operation OperationOf(CollectiveKind kind, size_t bytes, int world, std::byte* input,
                      std::byte* output) {
  const size_t count = bytes / sizeof(float);
  const bool parted = kind == CollectiveKind::kReduceScatter ||
                      kind == CollectiveKind::kAllGather || kind == CollectiveKind::kAllToAll;
  return {kind,           DataType::kFloat32,
          ReduceOp::kSum, input,
          output,         parted ? count / static_cast<size_t>(world) : count,
          /*root=*/0};
}

// Of one round.
int OperationsOf(size_t bytes) {
  return static_cast<int>(std::clamp<size_t>((size_t{128} << 20) / bytes, 2, 1000));
}

double BusFactor(CollectiveKind kind, int world) {
  const double others = static_cast<double>(world - 1) / world;
  return kind == CollectiveKind::kBroadcast   ? 1
         : kind == CollectiveKind::kAllReduce ? 2 * others
                                              : others;
}

void RunRank(int rank, int world, int device, const std::vector<std::string>& folders,
             size_t largest, sheaf::FakeMeetingPlace& place, std::vector<Row>& rows) {
  sheaf::FakeRendezvous rendezvous(place);
  sheaf::NcclOptions options;
  options.group.rank = rank;
  options.group.world_size = world;
  options.device = device;
  options.folders = folders;
  auto group = sheaf::NewNcclCommunicator(options, rendezvous);
  Check(group.status());
  const auto input = (*group)->Allocate(largest);
  const auto output = (*group)->Allocate(largest);
  Check(input.status());
  Check(output.status());
  for (CollectiveKind kind : kKinds) {
    for (size_t bytes : kSizes) {
      if (bytes > largest) break;
      const Operation operation = OperationOf(kind, bytes, world, input->get(), output->get());
      const auto run = [&] { Check((*group)->Run(operation)); };
      const int count = OperationsOf(bytes);
      for (int warm_up = 0; warm_up < std::min(count, 5); ++warm_up) run();
      const rounds::Figure figure =
          rounds::MeasureRounds(rounds::kRounds, count, run, [&] { Check((*group)->Barrier()); });
      if (rank == 0) rows.push_back({kind, bytes, figure});
    }
  }
  Check((*group)->Barrier());
}

}  // namespace

int main(int argc, char** argv) {
  std::string json;
  int world = 0;
  size_t largest = kSizes[std::size(kSizes) - 1];
  std::vector<std::string> folders;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json" && i + 1 < argc) {
      json = argv[++i];
    } else if (argument == "--ranks" && i + 1 < argc) {
      world = std::atoi(argv[++i]);
    } else if (argument == "--folder" && i + 1 < argc) {
      folders.emplace_back(argv[++i]);
    } else if (argument == "--largest" && i + 1 < argc) {
      largest = std::strtoull(argv[++i], nullptr, 10);
    } else {
      std::cerr << "bench_nccl: '" << argument
                << "': want --json FILE, --ranks N, --folder FOLDER (with libnccl.so.2) or "
                   "--largest BYTES\n";
      return 2;
    }
  }
  if (world < 0 || world > sheaf::FakeMeetingPlace::kRanks) {
    std::cerr << "bench_nccl: --ranks " << world << ": want 1 to "
              << sheaf::FakeMeetingPlace::kRanks << "\n";
    return 2;
  }
  std::vector<Row> rows;
  if (const absl::Status available = sheaf::NcclAvailable(folders); !available.ok()) {
    std::cout << "no GPU on this machine that NCCL can use: " << available.message() << "\n";
  } else {
    const auto cuda = sheaf::CudaLibrary::Load(folders);
    Check(cuda.status());
    const int devices = (*cuda)->devices();
    if (world <= 0) world = devices;
    sheaf::FakeMeetingPlace place;
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < world; ++rank) {
      ranks.emplace_back(
          [&, rank] { RunRank(rank, world, rank % devices, folders, largest, place, rows); });
    }
    for (std::thread& rank : ranks) rank.join();
    const auto device = sheaf::CudaDevice::Open(*cuda, 0);
    Check(device.status());
    std::cout << world << " ranks on " << devices << " x " << (*device)->name() << "\n";
  }
  std::printf("%-15s%12s%12s%14s%14s\n", "float32", "bytes", "us", "algbw GB/s", "busbw GB/s");
  std::string text;
  for (const Row& row : rows) {
    const double algbw = static_cast<double>(row.bytes) / row.figure.median_us / 1e3;
    const double busbw = algbw * BusFactor(row.kind, world);
    std::printf("%-15s%12zu%12.1f%14.2f%14.2f\n", sheaf::NameOf(row.kind), row.bytes,
                row.figure.median_us, algbw, busbw);
    char line[300];
    std::snprintf(line, sizeof line,
                  "%s  {\"name\": \"nccl %s, %zu bytes, %d ranks\", \"unit\": \"us\", \"value\": "
                  "%.6g, \"best\": %.6g, \"algbw_gbps\": %.4g, \"busbw_gbps\": %.4g}",
                  text.empty() ? "" : ",\n", sheaf::NameOf(row.kind), row.bytes, world,
                  row.figure.median_us, row.figure.best_us, algbw, busbw);
    text += line;
  }
  if (!json.empty()) {
    std::ofstream out(json);
    out << "[\n" << text << "\n]\n";
    if (!out) {
      std::cerr << "bench_nccl: cannot write " << json << "\n";
      return 1;
    }
  }
  return 0;
}
