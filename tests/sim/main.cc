// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The simulator as a program.
//   sim --test                 what ctest runs: many seeds, and one of them twice
//   sim --planted              plants each bug and looks whether it is found
//   sim --methods [--seed FIRST] [--seeds K]     what the GCS is asked and says, and what raylets
//                              say to each other, is lost, comes twice and comes again in flight;
//                              prints how often for each method, and fails if one had too little
//   sim --seed N [--events E] [--nodes N|FIRST..LAST] [--plant NAME] [--trace]     one run; with
//                              several nodes whole nodes crash too, and links between them are cut,
//                              lost and slow
//   sim --seeds K --seed FIRST ...                                     K runs
//   ... --jobs                 drivers submit commands, and do nothing else
//   sim [--drivers D] --scale N     what a task and an idle node cost in clusters of up to N nodes;
//                              D drivers at most make the tasks
//   sim --looks N              what a look at a cluster of N nodes costs, with 1,000 N tasks in it
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/random.h"
#include "tests/sim/cluster.h"
#include "tests/sim/large/scale.h"

namespace sheaf::sim {
namespace {

constexpr uint64_t kFirstSeed = 1;           // Of those that every CI run has.
constexpr uint64_t kTestEvents = 1'000'000;  // In all.
// The same for clusters of several nodes.
struct SeveralNodes {
  int nodes;
  uint64_t first_seed;
  uint64_t events;
};
constexpr SeveralNodes kSeveralNodes[] = {{3, 100, 400'000}, {10, 1, 100'000}};
constexpr uint64_t kFailedOnce[] = {117};  // Run besides: what they found stays mended.
constexpr uint64_t kFailedOnceOfJobs[] = {487912094794, 487912097655};  // The same, of two nodes.
constexpr uint64_t kEventsOfJobs = 3'000;                               // Of one run.
constexpr uint64_t kTestEventsOfJobs = 200'000;                         // In all.
constexpr uint64_t kSeedsPerPlant = 60;
constexpr int kTaskDrivers = 5;       // Of clusters of tasks, without --drivers.
constexpr uint64_t kEvents = 20'000;  // Of one run, without --events;
constexpr int kSmallCluster = 10;     // of more nodes than these, so many more for each.
constexpr uint64_t kEventsPerNode = 4'000;
constexpr uint64_t kEventsOfMethods = 60'000;  // Of one run.
constexpr uint64_t kLeastSeedsOfMethods = 5, kMostSeedsOfMethods = 60;

// So that each node of a large cluster has its share.
uint64_t EventsFor(int nodes) {
  return kEvents + (nodes > kSmallCluster ? kEventsPerNode * static_cast<uint64_t>(nodes) : 0);
}

std::string program;
RunOptions current;  // For the word about a crash.

std::string Replay(const RunOptions& options) {
  if (options.methods != nullptr)
    return absl::StrCat(program, " --methods --seed ", options.seed, " --seeds 1 --trace");
  std::string command =
      absl::StrCat(program, " --seed ", options.seed, " --events ", options.events);
  if (options.nodes != 1) absl::StrAppend(&command, " --nodes ", options.nodes);
  if (options.jobs) absl::StrAppend(&command, " --jobs");
  if (options.plant != Plant::kNone)
    absl::StrAppend(&command, " --plant ", std::string(PlantName(options.plant)));
  return command + " --trace";
}

void OnCrash(int signal) {
  // I1: no event may end a process.
  static std::string words;
  words = absl::StrCat("I1: signal ", signal, " ended the run of seed ", current.seed,
                       "\nreplay: ", Replay(current), "\n");
  std::fputs(words.c_str(), stdout);
  std::fflush(stdout);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

RunResult RunOnce(const RunOptions& options) {
  current = options;
  return Cluster(options).Run();
}

struct Total {
  uint64_t runs = 0, failed = 0, events = 0, calls = 0, commands = 0;
  Nanos fault_time = 0;
  FaultCounts faults{};
  std::map<ErrorKind, size_t> errors;
  std::map<proto::Submission::State, size_t> command_ends;
  void Add(const RunResult& result) {
    ++runs;
    events += result.events;
    calls += result.calls;
    commands += result.commands;
    for (const auto& [state, count] : result.command_ends) command_ends[state] += count;
    fault_time += result.fault_time;
    for (size_t i = 0; i < faults.size(); ++i) faults[i] += result.faults[i];
    for (const auto& [kind, count] : result.errors) errors[kind] += count;
    failed += !result.failures.empty();
  }
  void Print() const {
    std::printf("%lu runs, %lu events, %lu calls\nfaults in %.0f s:", runs, events, calls,
                static_cast<double>(fault_time) / kSecond);
    for (size_t i = 0; i < faults.size(); ++i) {
      std::printf(" %s %lu%s", std::string(FaultName(static_cast<Fault>(i))).c_str(), faults[i],
                  i + 1 < faults.size() ? "," : "\n");
    }
    std::printf("errors that calls ended in:");
    for (const auto& [kind, count] : errors) std::printf(" %s %zu", ErrorName(kind), count);
    std::printf("\ncommands that were started: %lu; that users saw end:", commands);
    for (const auto& [state, count] : command_ends)
      std::printf(" %s %zu", proto::Submission::State_Name(state).c_str(), count);
    std::printf("\n");
  }
};

void PrintFailures(const RunOptions& options, const RunResult& result) {
  std::printf("seed %lu of %d nodes fails after %lu events, %.3f s of virtual time:\n",
              options.seed, options.nodes, result.events,
              static_cast<double>(result.virtual_time) / kSecond);
  for (const std::string& failure : result.failures) std::printf("  %s\n", failure.c_str());
  std::printf("replay: %s\n", Replay(options).c_str());
  std::fflush(stdout);
}

// How many nodes the clusters of some runs have; each seed draws its own number.
struct NodeRange {
  int least = 1, most = 1;
  int Draw(uint64_t seed) const {
    return least +
           static_cast<int>(SeededRandom(seed).Below(static_cast<uint64_t>(most - least) + 1));
  }
};

// "3" or "10..50"; nothing else.
std::optional<NodeRange> ParseNodes(const std::string& words) {
  NodeRange range;
  const size_t dots = words.find("..");
  if (!absl::SimpleAtoi(words.substr(0, dots), &range.least)) return std::nullopt;
  range.most = range.least;
  if (dots != std::string::npos && !absl::SimpleAtoi(words.substr(dots + 2), &range.most))
    return std::nullopt;
  if (range.least < 1 || range.most < range.least) return std::nullopt;
  return range;
}

int RunSeeds(RunOptions options, uint64_t seeds, const NodeRange& nodes, uint64_t events) {
  Total total;
  for (uint64_t i = 0; i < seeds; ++i, ++options.seed) {
    options.nodes = nodes.Draw(options.seed);
    options.events = events != 0 ? events : EventsFor(options.nodes);
    const RunResult result = RunOnce(options);
    total.Add(result);
    if (seeds == 1) std::printf("seed %lu: trace %016lx\n", options.seed, result.trace_hash);
    if (!result.failures.empty()) PrintFailures(options, result);
  }
  total.Print();
  return total.failed == 0 ? 0 : 1;
}

// Runs seeds from `options.seed` on until there were so many events.
void RunEvents(RunOptions options, uint64_t events, Total* total) {
  for (const uint64_t until = total->events + events; total->events < until; ++options.seed) {
    const RunResult result = RunOnce(options);
    total->Add(result);
    if (!result.failures.empty()) PrintFailures(options, result);
  }
}

int Test() {
  Total total;
  RunOptions options;
  options.seed = kFirstSeed;
  std::printf("seeds from %lu on\n", kFirstSeed);
  RunEvents(options, kTestEvents, &total);
  for (const SeveralNodes& several : kSeveralNodes) {
    RunOptions with_nodes;
    with_nodes.nodes = several.nodes;
    with_nodes.seed = several.first_seed;
    RunEvents(with_nodes, several.events, &total);
  }
  for (const uint64_t seed : kFailedOnce) {
    options.seed = seed;
    const RunResult result = RunOnce(options);
    total.Add(result);
    if (!result.failures.empty()) PrintFailures(options, result);
  }
  RunOptions jobs;
  jobs.jobs = true;
  jobs.nodes = 2;
  jobs.events = kEventsOfJobs;
  for (const uint64_t seed : kFailedOnceOfJobs) {
    jobs.seed = seed;
    RunEvents(jobs, 1, &total);
  }
  jobs.seed = kFirstSeed;
  RunEvents(jobs, kTestEventsOfJobs, &total);
  total.Print();
  for (const int nodes : {1, 3}) {
    options.nodes = nodes;
    options.seed = kFirstSeed;
    const uint64_t first = RunOnce(options).trace_hash, again = RunOnce(options).trace_hash;
    if (first == again) continue;
    std::printf("seed %lu of %d nodes was another run the second time: trace %016lx, then %016lx\n",
                kFirstSeed, nodes, first, again);
    return 1;
  }
  return total.failed == 0 ? 0 : 1;
}

// `least` runs from the seed of `options` on, and more until each method has had enough of each
// fault.
int Methods(RunOptions options, uint64_t least) {
  MethodTable table;
  Total total;
  options.nodes = 3;
  options.events = kEventsOfMethods;
  options.methods = &table;
  const uint64_t first = options.seed, most = std::max(least, kMostSeedsOfMethods);
  std::printf("seeds from %lu on\n", first);
  for (; options.seed < first + most; ++options.seed) {
    if (options.seed >= first + least && (least == 1 || table.Missing().empty())) break;
    const RunResult result = RunOnce(options);
    total.Add(result);
    if (!result.failures.empty()) PrintFailures(options, result);
  }
  table.Print();
  total.Print();
  for (const std::string& words : table.Missing()) std::printf("not covered: %s\n", words.c_str());
  std::printf("%zu of %zu methods had each fault at least %lu times, %lu of %lu runs failed\n",
              table.CountWanted() - table.CountMissing(), table.CountWanted(), MethodTable::kWanted,
              total.failed, total.runs);
  return total.failed == 0 && table.Missing().empty() ? 0 : 1;
}

int Planted() {
  int missed = 0;
  for (uint8_t i = 1; i < static_cast<uint8_t>(Plant::kCount); ++i) {
    RunOptions options;
    options.plant = static_cast<Plant>(i);
    options.nodes = NodesFor(options.plant);
    bool found = false;
    for (uint64_t seed = 1; seed <= kSeedsPerPlant && !found; ++seed) {
      options.seed = seed;
      const RunResult result = RunOnce(options);
      if (result.failures.empty() || result.planted == 0) continue;
      found = true;
      std::printf("%-20s found by %s after %lu seeds: %.140s\n",
                  std::string(PlantName(options.plant)).c_str(),
                  result.failures[0].substr(0, 2).c_str(), seed,
                  result.failures[0].substr(4, result.failures[0].find('\n') - 4).c_str());
    }
    if (!found)
      std::printf("%-20s NOT FOUND in %lu seeds\n", std::string(PlantName(options.plant)).c_str(),
                  kSeedsPerPlant);
    missed += !found;
    std::fflush(stdout);
  }
  return missed == 0 ? 0 : 1;
}

int Usage() {
  std::fprintf(
      stderr,
      "usage: sim --test | --planted | --methods | [--drivers D] --scale NODES | --looks NODES | "
      "[--seed N|random] "
      "[--seeds K] [--events E] "
      "[--nodes N|FIRST..LAST] [--jobs] [--plant NAME] [--trace]\n"
      "--nodes N: a cluster of N, or each seed draws how many; from 2 on whole nodes "
      "crash and others join, nodes lose "
      "sight of each other and of the GCS, and some are slow\n"
      "--jobs: drivers submit commands, and do nothing else\nplants:");
  for (uint8_t i = 1; i < static_cast<uint8_t>(Plant::kCount); ++i) {
    std::fprintf(stderr, " %s", std::string(PlantName(static_cast<Plant>(i))).c_str());
  }
  std::fprintf(stderr, "\n");
  return 2;
}

int Main(int argc, char** argv) {
  program = argv[0];
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS}) std::signal(signal, OnCrash);
  RunOptions options;
  uint64_t seeds = 0;  // As many as it needs.
  uint64_t events = 0;
  std::optional<NodeRange> range = NodeRange();
  bool methods = false;
  int drivers = kTaskDrivers;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--test") return Test();
    if (flag == "--planted") return Planted();
    if (flag == "--methods") {
      methods = true;
      continue;
    }
    if (flag == "--jobs") {
      options.jobs = true;
      continue;
    }
    if (flag == "--trace") {
      options.trace = true;
      continue;
    }
    if (i + 1 == argc) return Usage();
    const char* value = argv[++i];
    if (flag == "--seed") {
      options.seed =
          std::string_view(value) == "random" ? EntropySeed() : std::strtoull(value, nullptr, 10);
    } else if (flag == "--seeds") {
      seeds = std::strtoull(value, nullptr, 10);
    } else if (flag == "--events") {
      events = std::strtoull(value, nullptr, 10);
    } else if (flag == "--nodes") {
      range = ParseNodes(value);
      if (!range) return Usage();
    } else if (flag == "--drivers") {
      drivers = std::max(std::atoi(value), 1);
    } else if (flag == "--scale") {
      const int nodes = std::atoi(value);
      return nodes < 1 ? Usage() : RunAtScale(kFirstSeed, nodes, drivers);
    } else if (flag == "--looks") {
      const int nodes = std::atoi(value);
      return nodes < 1 ? Usage() : RunLookedAt(kFirstSeed, nodes);
    } else if (flag == "--plant") {
      options.plant = PlantOf(value);
      if (options.plant == Plant::kCount) return Usage();
    } else {
      return Usage();
    }
  }
  if (methods) return Methods(options, seeds != 0 ? seeds : kLeastSeedsOfMethods);
  return RunSeeds(options, std::max<uint64_t>(seeds, 1), *range, events);
}

}  // namespace
}  // namespace sheaf::sim

int main(int argc, char** argv) { return sheaf::sim::Main(argc, argv); }
