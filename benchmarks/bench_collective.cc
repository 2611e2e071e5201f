// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// All-reduce of float32 between processes of one node: from arrays in the arena and from private
// ones, beside the same loop in bare shared memory ("loop": nothing but two flags around it), a
// plain memcpy of as many bytes, Gloo over loopback TCP and Open MPI in the same run; and as if the
// ranks were on several nodes: each on its own ("apart"), or on two ("2 nodes").
//   bench_collective [--json FILE] [--ranks N]... [--only COLUMN]... [--largest MIB] [--no-peers]
// Bandwidths by the method of nccl-tests: algbw = bytes / time, busbw = algbw * 2 (n - 1) / n.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <span>
#include <string>

#include "benchmarks/arguments.h"
#include "benchmarks/collective_rounds.h"
#include "collective/fake_rendezvous.h"
#include "collective/net/apart_communicator.h"
#include "collective/net/hierarchical_communicator.h"
#include "collective/reduce_ops.h"
#include "collective/shm/shm_communicator.h"
#include "shm/doorbell.h"
#include "shm/segment.h"

namespace {

using sheaf::Communicator;
using sheaf::DataType;
using sheaf::ReduceOp;

using Figures = std::map<size_t, rounds::Figure>;
constexpr size_t kLargest = rounds::kSizes[std::size(rounds::kSizes) - 1];

// The sizes to measure; peers measure all.
std::span<const size_t> wanted_sizes = rounds::kSizes;

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << "bench_collective: " << status << "\n";
  std::_Exit(1);
}

enum class Nodes { kOne, kTwo, kApart };

// One rank's whole run; prints the figures of rank 0.
void RunRank(int rank, int ranks, bool in_arena, Nodes nodes, sheaf::FakeMeetingPlace& place) {
  sheaf::FakeRendezvous rendezvous(place);
  sheaf::CommunicatorOptions options;
  options.rank = rank;
  options.world_size = ranks;
  options.arena_bytes = size_t{1} << 30;
  if (nodes == Nodes::kTwo) options.node = rank < ranks / 2 ? "first" : "second";
  auto group = nodes == Nodes::kOne   ? sheaf::FormShmCommunicator(options, rendezvous)
               : nodes == Nodes::kTwo ? sheaf::FormHierarchicalCommunicator(options, rendezvous)
                                      : sheaf::FormApartCommunicator(options, rendezvous);
  Check(group.status());
  for (size_t bytes : wanted_sizes) {
    const size_t count = bytes / sizeof(float);
    std::vector<float> own(in_arena ? 0 : count);
    std::shared_ptr<std::byte> shared;
    float* array = own.data();
    if (in_arena) {
      auto memory = (*group)->Allocate(bytes);
      Check(memory.status());
      shared = *std::move(memory);
      array = reinterpret_cast<float*>(shared.get());
    }
    std::fill(array, array + count, static_cast<float>(rank + 1));
    const auto reduce = [&] {
      Check((*group)->AllReduce(array, array, count, DataType::kFloat32));
    };
    const auto barrier = [&] { Check((*group)->Barrier()); };
    barrier();
    reduce();
    const float sum = static_cast<float>(ranks * (ranks + 1)) / 2;
    floors::Require(array[0] == sum && array[count - 1] == sum, "sum");
    barrier();
    std::fill(array, array + count, 0.0f);
    const auto largest = [&](double seconds) {
      Check((*group)->AllReduce(&seconds, &seconds, 1, DataType::kFloat64, ReduceOp::kMax));
      return seconds;
    };
    const rounds::Figure figure = rounds::Measure(reduce, barrier, largest);
    if (rank == 0) rounds::PrintFigure(bytes, figure);
  }
  (*group)->Barrier().IgnoreError();
}

// A rank of the floor: its slice of all arrays, between two barriers of which it sees nothing but
// `entered`.
void RunBareRank(int rank, int ranks, std::byte* memory) {
  struct alignas(64) Flag {
    std::atomic<uint64_t> entered;
  };
  Flag* const flags = reinterpret_cast<Flag*>(memory);
  uint64_t entered = 0;
  const auto barrier = [&] {
    flags[rank].entered.store(++entered, std::memory_order_release);
    for (int peer = 0; peer < ranks; ++peer) {
      for (int look = 0; flags[peer].entered.load(std::memory_order_acquire) < entered; ++look)
        sheaf::SpinStep(look);
    }
  };
  const auto largest = [&](double seconds) {
    double* const said = reinterpret_cast<double*>(memory + sheaf::kPageBytes / 2);
    said[rank] = seconds;
    barrier();
    const double most = *std::max_element(said, said + ranks);
    barrier();
    return most;
  };
  for (size_t bytes : wanted_sizes) {
    const size_t count = bytes / sizeof(float);
    const size_t each = count / static_cast<size_t>(ranks);
    std::vector<const std::byte*> sources;
    std::vector<std::byte*> targets;
    for (int peer = 0; peer < ranks; ++peer) {
      targets.push_back(memory + sheaf::kPageBytes + static_cast<size_t>(peer) * kLargest +
                        static_cast<size_t>(rank) * each * sizeof(float));
      sources.push_back(targets.back());
    }
    const auto reduce = [&] {
      barrier();
      sheaf::Reduce(DataType::kFloat32, ReduceOp::kSum, sources, targets, each);
      barrier();
    };
    const rounds::Figure figure = rounds::Measure(reduce, barrier, largest);
    if (rank == 0) rounds::PrintFigure(bytes, figure);
  }
}

Figures Read(FILE* from) {
  Figures figures;
  size_t bytes = 0;
  rounds::Figure figure;
  while (std::fscanf(from, "%zu %lf %lf", &bytes, &figure.median_us, &figure.best_us) == 3) {
    figures[bytes] = figure;
  }
  return figures;
}

// What rank 0 of `ranks` processes prints.
template <class Run>
Figures RunRanks(int ranks, Run run) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDOUT_FILENO);
    run(rank);
    std::_Exit(0);
  }
  close(ends[1]);
  FILE* output = fdopen(ends[0], "r");
  Figures figures = Read(output);
  fclose(output);
  for (int rank = 0; rank < ranks; ++rank) wait(nullptr);
  return figures;
}

Figures RunSheaf(int ranks, bool in_arena, Nodes nodes) {
  sheaf::FakeMeetingPlace place;
  return RunRanks(ranks, [&](int rank) { RunRank(rank, ranks, in_arena, nodes, place); });
}

Figures RunBare(int ranks) {
  const size_t size = sheaf::kPageBytes + static_cast<size_t>(ranks) * kLargest;
  const auto segment = sheaf::MakeSegment("bench", size);
  Check(segment.status());
  const auto memory = sheaf::Mapping::Map(segment->get(), 0, size, sheaf::Access::kReadWrite);
  Check(memory.status());
  return RunRanks(ranks, [&](int rank) { RunBareRank(rank, ranks, memory->data()); });
}

Figures RunPeer(const std::string& command) {
  FILE* output = popen((command + " 2>/dev/null").c_str(), "r");
  if (output == nullptr) return {};
  Figures figures = Read(output);
  return pclose(output) == 0 ? figures : Figures();
}

Figures RunMemcpy() {
  Figures figures;
  for (size_t bytes : wanted_sizes) {
    std::vector<char> from(bytes, 1), to(bytes, 2);
    figures[bytes] = rounds::Measure(
        [&] {
          std::memcpy(to.data(), from.data(), bytes);
          asm volatile("" : : "r"(to.data()) : "memory");
        },
        [] {}, [](double seconds) { return seconds; });
  }
  return figures;
}

std::string SizeText(size_t bytes) {
  return bytes >= (1 << 20) ? std::to_string(bytes >> 20) + " MiB"
                            : std::to_string(bytes >> 10) + " KiB";
}

struct Wanted {
  std::string json;
  std::vector<int> worlds;
  std::vector<std::string> columns;  // None: all.
  bool peers = true;
};

Wanted Parse(int argc, char** argv) {
  Wanted wanted;
  bench::Arguments arguments("bench collective",
                             "Collective operations of ranks on the CPUs of this machine.");
  arguments.Text("--json", "FILE", "a file for the figures", wanted.json);
  arguments.Value("--ranks", "N", "a number of ranks, at least 1; may be given several times",
                  [&](auto text) {
                    wanted.worlds.push_back(std::atoi(std::string(text).c_str()));
                    return wanted.worlds.back() >= 1;
                  });
  arguments.Value("--only", "COLUMN", "a column; may be given several times", [&](auto text) {
    wanted.columns.emplace_back(text);
    return !text.empty();
  });
  size_t largest = 0;
  arguments.AtLeast("--largest", "MIB", "the largest array in MiB, at least 1", size_t{1}, largest);
  arguments.Flag("--no-peers", "without Gloo and Open MPI", [&] { wanted.peers = false; });
  arguments.Parse(argc, argv);
  while (largest > 0 && wanted_sizes.size() > 1 && wanted_sizes.back() > largest << 20) {
    wanted_sizes = wanted_sizes.first(wanted_sizes.size() - 1);
  }
  if (wanted.worlds.empty()) wanted.worlds = {2, 4};
  return wanted;
}

using Columns = std::vector<std::pair<std::string, Figures>>;

// `directory`: where the peers' programs are.
Columns Measure(const Wanted& wanted, int ranks, const std::filesystem::path& directory) {
  Columns columns;
  const auto add = [&](const std::string& name, auto run) {
    const auto& only = wanted.columns;
    if (only.empty() || std::find(only.begin(), only.end(), name) != only.end()) {
      columns.emplace_back(name, run());
    }
  };
  add("arena", [&] { return RunSheaf(ranks, true, Nodes::kOne); });
  add("private", [&] { return RunSheaf(ranks, false, Nodes::kOne); });
  add("apart", [&] { return RunSheaf(ranks, false, Nodes::kApart); });
  if (ranks > 2) add("2 nodes", [&] { return RunSheaf(ranks, true, Nodes::kTwo); });
  add("loop", [&] { return RunBare(ranks); });
  add("memcpy", [&] { return RunMemcpy(); });
  if (!wanted.peers) return columns;
  const std::string count = std::to_string(ranks);
  if (exists(directory / "peer_gloo")) {
    add("gloo", [&] { return RunPeer((directory / "peer_gloo").string() + " " + count); });
  } else {
    std::cout << "gloo is left out: libgloo-dev was not there when this was built\n";
  }
  if (exists(directory / "peer_mpi")) {
    add("mpi", [&] {
      return RunPeer("mpirun --allow-run-as-root --oversubscribe -n " + count + " " +
                     (directory / "peer_mpi").string());
    });
  } else {
    std::cout << "mpi is left out: libopenmpi-dev was not there when this was built\n";
  }
  return columns;
}

}  // namespace

int main(int argc, char** argv) {
  const Wanted wanted = Parse(argc, argv);
  const std::filesystem::path directory = std::filesystem::path(argv[0]).parent_path();
  std::string rows;
  for (int ranks : wanted.worlds) {
    const Columns columns = Measure(wanted, ranks, directory);
    std::printf("\nall_reduce float32, %d ranks: median us for an operation (algbw GB/s)\n%-9s",
                ranks, "");
    for (const auto& [name, figures] : columns) std::printf("%20s", name.c_str());
    std::printf("\n");
    for (size_t bytes : wanted_sizes) {
      std::printf("%-9s", SizeText(bytes).c_str());
      for (const auto& [name, figures] : columns) {
        const auto figure = figures.find(bytes);
        if (figure == figures.end()) {
          std::printf("%20s", "failed");
          continue;
        }
        const double us = figure->second.median_us;
        const double algbw = static_cast<double>(bytes) / us / 1e3;
        const double busbw = name == "memcpy" ? algbw : algbw * 2 * (ranks - 1) / ranks;
        std::printf("%12.1f (%5.2f)", us, algbw);
        char row[400];
        std::snprintf(
            row, sizeof row,
            "%s  {\"name\": \"all_reduce %s, %d ranks, %s\", \"unit\": \"us\", \"value\": %.6g, "
            "\"best\": %.6g, \"algbw_gbps\": %.4g, \"busbw_gbps\": %.4g}",
            rows.empty() ? "" : ",\n", SizeText(bytes).c_str(), ranks, name.c_str(), us,
            figure->second.best_us, algbw, busbw);
        rows += row;
      }
      std::printf("\n");
    }
    std::fflush(stdout);
  }
  if (!wanted.json.empty()) {
    std::ofstream out(wanted.json);
    out << "[\n" << rows << "\n]\n";
    if (!out) {
      std::cerr << "bench_collective: cannot write " << wanted.json << "\n";
      return 1;
    }
  }
  return 0;
}
