// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Collective operations on CUDA arrays through NCCL, by the method of nccl-tests: warm-up, then
// operations back to back in rounds (collective_rounds.h), of which the median counts. Ranks are threads of this process, one for
// each GPU; with one GPU, one rank, or with NCCL_MULTI_RANK_GPU_ENABLE=1 the given number.
//   bench_nccl [--json FILE] [--ranks N] [--folder FOLDER] [--largest BYTES] [--torch PYTHON]
// algbw = bytes / time; busbw = algbw * 2 (n - 1) / n for all_reduce, (n - 1) / n for
// reduce_scatter, all_gather and all_to_all, 1 for broadcast. `bytes` are those of the larger
// array. An operation is one call of Sheaf: it includes that the ranks compare what they called,
// and that the caller waits for the device. The floor beside it is NCCL alone, called and waited
// for; the peer, torch.distributed over the same NCCL (peers/torch_nccl.py, with a process for each
// rank), which is run where --torch names a Python that has torch. Without a GPU the table is
// empty.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/arguments.h"
#include "benchmarks/collective_rounds.h"
#include "collective/fake_rendezvous.h"
#include "collective/nccl/nccl_communicator.h"
#include "collective/nccl/nccl_library.h"

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
  rounds::Figure figure, floor;
};

using TorchTimes = std::map<std::pair<std::string, size_t>, double>;  // Median us.

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

double BusFactor(CollectiveKind kind, int world) {
  const double others = static_cast<double>(world - 1) / world;
  return kind == CollectiveKind::kBroadcast   ? 1
         : kind == CollectiveKind::kAllReduce ? 2 * others
                                              : others;
}

// NCCL without Sheaf: a communicator and a stream, called and waited for.
class BareNccl {
 public:
  // `id` is one for all ranks.
  BareNccl(std::shared_ptr<const sheaf::nccl::Library> library, const sheaf::CudaDevice& device,
           const sheaf::nccl::UniqueId& id, int world, int rank)
      : library_(std::move(library)), device_(device), world_(world) {
    const sheaf::CudaDevice::Current current(device_);
    CheckCuda(cuda()->cuStreamCreate(&stream_, sheaf::kCudaStreamNonBlocking));
    CheckCuda(cuda()->cuEventCreate(&event_, sheaf::kCudaEventDisableTiming));
    sheaf::nccl::Config config;
    config.blocking = 1;
    CheckNccl(nccl()->ncclCommInitRankConfig(&comm_, world, id, rank, &config));
  }
  ~BareNccl() {
    nccl()->ncclCommAbort(comm_);
    const sheaf::CudaDevice::Current current(device_);
    cuda()->cuEventDestroy_v2(event_);
    cuda()->cuStreamDestroy_v2(stream_);
  }
  BareNccl(const BareNccl&) = delete;
  BareNccl& operator=(const BareNccl&) = delete;

  void Run(const Operation& operation) {
    const sheaf::CudaDevice::Current current(device_);
    Call(operation);
    CheckCuda(cuda()->cuEventRecord(event_, stream_));
    while (cuda()->cuEventQuery(event_) == sheaf::kCudaNotReady) continue;
  }

 private:
  const sheaf::CudaLibrary& cuda() const { return device_.library(); }
  const sheaf::nccl::Library& nccl() const { return *library_; }
  void CheckCuda(int error) { Check(cuda().StatusOf(error, "CUDA")); }
  void CheckNccl(sheaf::nccl::Result result) { Check(nccl().StatusOf(result, "NCCL")); }

  void Call(const Operation& operation) {
    const int type = sheaf::nccl::CodeOf(operation.type), sum = sheaf::nccl::CodeOf(operation.op);
    const auto* const in = static_cast<const std::byte*>(operation.input);
    auto* const out = static_cast<std::byte*>(operation.output);
    const size_t count = operation.count;
    switch (operation.kind) {
      case CollectiveKind::kAllReduce:
        return CheckNccl(nccl()->ncclAllReduce(in, out, count, type, sum, comm_, stream_));
      case CollectiveKind::kReduceScatter:
        return CheckNccl(nccl()->ncclReduceScatter(in, out, count, type, sum, comm_, stream_));
      case CollectiveKind::kAllGather:
        return CheckNccl(nccl()->ncclAllGather(in, out, count, type, comm_, stream_));
      case CollectiveKind::kBroadcast:
        return CheckNccl(nccl()->ncclBroadcast(in, out, count, type, 0, comm_, stream_));
      default:
        break;
    }
    CheckNccl(nccl()->ncclGroupStart());
    for (int rank = 0; rank < world_; ++rank) {
      const size_t offset = static_cast<size_t>(rank) * count * sizeof(float);
      CheckNccl(nccl()->ncclSend(in + offset, count, type, rank, comm_, stream_));
      CheckNccl(nccl()->ncclRecv(out + offset, count, type, rank, comm_, stream_));
    }
    CheckNccl(nccl()->ncclGroupEnd());
  }

  const std::shared_ptr<const sheaf::nccl::Library> library_;
  const sheaf::CudaDevice& device_;
  const int world_;
  sheaf::CudaStream stream_ = nullptr;
  sheaf::CudaEvent event_ = nullptr;
  sheaf::nccl::Comm comm_ = nullptr;
};

// What the ranks tell each other beside the groups that are measured.
struct Shared {
  sheaf::FakeMeetingPlace place;
  sheaf::nccl::UniqueId id{};  // Of the bare communicator: rank 0's.
  std::vector<double> seconds;
};

void RunRank(int rank, int world, int device, const std::vector<std::string>& folders,
             size_t largest, Shared& shared, std::vector<Row>& rows) {
  sheaf::FakeRendezvous rendezvous(shared.place);
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
  const auto nccl = sheaf::nccl::Library::Load(folders);
  Check(nccl.status());
  const auto barrier = [&] { Check((*group)->Barrier()); };
  if (rank == 0) Check((*nccl)->StatusOf((**nccl)->ncclGetUniqueId(&shared.id), "NCCL"));
  barrier();  // The others read the id behind it.
  BareNccl bare(*nccl, (*group)->device(), shared.id, world, rank);
  const auto most = [&](double seconds) {
    shared.seconds[static_cast<size_t>(rank)] = seconds;
    barrier();
    const double found = *std::max_element(shared.seconds.begin(), shared.seconds.end());
    barrier();
    return found;
  };
  for (CollectiveKind kind : kKinds) {
    for (size_t bytes : kSizes) {
      if (bytes > largest) break;
      const Operation operation = OperationOf(kind, bytes, world, input->get(), output->get());
      const rounds::Figure floor = rounds::Measure([&] { bare.Run(operation); }, barrier, most);
      const rounds::Figure figure =
          rounds::Measure([&] { Check((*group)->Run(operation)); }, barrier, most);
      if (rank != 0) continue;
      rows.push_back({kind, bytes, figure, floor});
      std::cerr << "." << std::flush;
    }
  }
  barrier();
}

// Empty if it failed.
TorchTimes RunTorch(const std::string& python, const std::string& program, int world,
                    size_t largest) {
  const std::string command =
      python + " " + program + " " + std::to_string(world) + " " + std::to_string(largest);
  FILE* const output = popen(command.c_str(), "r");
  TorchTimes times;
  if (output == nullptr) return times;
  char kind[32];
  size_t bytes = 0;
  double median_us = 0;
  while (std::fscanf(output, "%31s %zu %lf", kind, &bytes, &median_us) == 3)
    times[{kind, bytes}] = median_us;
  if (pclose(output) != 0) times.clear();
  return times;
}

}  // namespace

int main(int argc, char** argv) {
  std::string json, torch;
  int world = 0;
  size_t largest = kSizes[std::size(kSizes) - 1];
  std::vector<std::string> folders;
  bench::Arguments arguments("bench nccl", "Collective operations of CUDA arrays through NCCL.");
  arguments.Text("--json", "FILE", "a file for the figures", json);
  arguments.Value("--ranks", "N",
                  "a number of ranks, 1 to " + std::to_string(sheaf::FakeMeetingPlace::kRanks),
                  [&](auto text) {
                    world = std::atoi(std::string(text).c_str());
                    return world >= 1 && world <= sheaf::FakeMeetingPlace::kRanks;
                  });
  arguments.Value("--folder", "FOLDER", "a folder to look for libnccl.so.2 in", [&](auto text) {
    folders.emplace_back(text);
    return !text.empty();
  });
  arguments.AtLeast("--largest", "BYTES", "the size of the largest array in bytes, at least 4096",
                    size_t{4096}, largest);
  arguments.Text("--torch", "PYTHON", "a Python with torch, to compare with", torch);
  arguments.Parse(argc, argv);
  std::vector<Row> rows;
  TorchTimes torch_times;
  if (const absl::Status available = sheaf::NcclAvailable(folders); !available.ok()) {
    std::cout << "no GPU on this machine that NCCL can use: " << available.message() << "\n";
  } else {
    const auto cuda = sheaf::CudaLibrary::Load(folders);
    Check(cuda.status());
    const int devices = (*cuda)->devices();
    if (world <= 0) world = devices;
    Shared shared;
    shared.seconds.resize(static_cast<size_t>(world));
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < world; ++rank) {
      ranks.emplace_back(
          [&, rank] { RunRank(rank, world, rank % devices, folders, largest, shared, rows); });
    }
    for (std::thread& rank : ranks) rank.join();
    std::cerr << "\n";
    const auto device = sheaf::CudaDevice::Open(*cuda, 0);
    Check(device.status());
    const auto nccl = sheaf::nccl::Library::Load(folders);
    Check(nccl.status());
    std::cout << world << " ranks on " << devices << " x " << (*device)->name() << ", NCCL "
              << sheaf::nccl::VersionText((*nccl)->version()) << "\n";
    if (!torch.empty()) {
      const auto program = std::filesystem::path(SHEAF_BENCHMARKS) / "peers/torch_nccl.py";
      torch_times = RunTorch(torch, program.string(), world, largest);
      if (torch_times.empty()) std::cout << "torch is left out: its program failed\n";
    }
  }
  std::printf("%-15s%12s%12s%12s%12s%14s%14s\n", "float32", "bytes", "us", "NCCL us", "torch us",
              "algbw GB/s", "busbw GB/s");
  std::string text;
  for (const Row& row : rows) {
    const double algbw = static_cast<double>(row.bytes) / row.figure.median_us / 1e3;
    const double busbw = algbw * BusFactor(row.kind, world);
    const auto torch_us = torch_times.find({sheaf::NameOf(row.kind), row.bytes});
    const std::string beside =
        torch_us == torch_times.end() ? "" : std::to_string(torch_us->second);
    std::printf("%-15s%12zu%12.1f%12.1f%12.6s%14.2f%14.2f\n", sheaf::NameOf(row.kind), row.bytes,
                row.figure.median_us, row.floor.median_us, beside.empty() ? "-" : beside.c_str(),
                algbw, busbw);
    char line[400];
    std::snprintf(
        line, sizeof line,
        "%s  {\"name\": \"nccl %s, %zu bytes, %d ranks\", \"unit\": \"us\", \"better\": "
        "\"lower\", \"sheaf\": %.6g, \"floor\": %.6g, \"torch\": %s, \"algbw_gbps\": %.4g, "
        "\"busbw_gbps\": %.4g}",
        text.empty() ? "" : ",\n", sheaf::NameOf(row.kind), row.bytes, world, row.figure.median_us,
        row.floor.median_us, beside.empty() ? "null" : beside.c_str(), algbw, busbw);
    text += line;
  }
  if (!json.empty()) {
    std::ofstream out(json);
    out << "{\"rows\": [\n" << text << "\n]}\n";
    if (!out) {
      std::cerr << "bench_nccl: cannot write " << json << "\n";
      return 1;
    }
  }
  return 0;
}
