// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What calls, tasks and objects cost a C++ user, beside the floor of each (benchmarks/floor)
// measured in the same run.
//   bench_cpp [--json FILE] [--only TEXT] [--seconds N] [--no-floors]
#include <sheaf/sheaf.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/arguments.h"

namespace {

using Clock = std::chrono::steady_clock;

int Nothing(int x) { return x; }
class Echo {
 public:
  Echo() = default;
  int Call(int x) { return x; }
};

SHEAF_REMOTE(Nothing);
SHEAF_ACTOR(Echo, sheaf::Constructor<>, &Echo::Call);

double Seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double seconds_per_row = 0.6;

double ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  double pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// Proportional set size of all descendants of this process: the node and its workers.
double DescendantsMegabytes() {
  std::multimap<pid_t, pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "status");
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    for (std::string word; pid > 0 && file >> word;) {
      pid_t parent = 0;
      if (word == "PPid:" && file >> parent) children.emplace(parent, pid);
    }
  }
  double kilobytes = 0;
  std::vector<pid_t> open = {getpid()};
  while (!open.empty()) {
    const auto [begin, end] = children.equal_range(open.back());
    open.pop_back();
    for (auto child = begin; child != end; ++child) {
      open.push_back(child->second);
      std::ifstream file("/proc/" + std::to_string(child->second) + "/smaps_rollup");
      double amount = 0;
      for (std::string word; file >> word;) {
        if (word == "Pss:" && file >> amount) kilobytes += amount;
      }
    }
  }
  if (kilobytes == 0) throw std::runtime_error("the node is no child of this process");
  return kilobytes / 1024;
}

// Forks of this program, 100 at a time, each of which touches what an actor's process surely does
// and ends: what the kernel takes for a process with these libraries.
double ForkRate() {
  static volatile char touched[64 * 4096];
  const auto begin = Clock::now();
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      for (size_t at = 0; at < sizeof touched; at += 4096) touched[at] = 1;
      _exit(0);
    }
  }
  for (int i = 0; i < 100; ++i) wait(nullptr);
  return 100 / Seconds(begin);
}

// The median rate of five rounds.
double Rate(const std::function<size_t()>& batch) {
  batch();
  std::vector<double> rates;
  for (int round = 0; round < 5; ++round) {
    const auto begin = Clock::now();
    size_t done = 0;
    do {
      done += batch();
    } while (Seconds(begin) < seconds_per_row / 5);
    rates.push_back(static_cast<double>(done) / Seconds(begin));
  }
  std::sort(rates.begin(), rates.end());
  return rates[2];
}

// The median time of `runs` runs, in seconds.
double Time(int runs, const std::function<void()>& run) {
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const auto begin = Clock::now();
    run();
    times.push_back(Seconds(begin));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Row {
  std::string name, unit;
  bool higher_is_better;
  double sheaf;
  double floor;  // 0: none applies.
};

std::map<std::string, double> RunFloors(const std::filesystem::path& directory) {
  std::map<std::string, double> out;
  for (const char* program : {"floor_ring", "floor_memcpy", "floor_local"}) {
    const std::string command = (directory / "floor" / program).string() + " --seconds 0.5";
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) continue;
    char line[512];
    while (std::fgets(line, sizeof line, pipe) != nullptr) {
      char name[128];
      double value = 0;
      const char* at = std::strstr(line, "\"value\":");
      if (std::sscanf(line, "{\"name\": \"%127[^\"]\"", name) == 1 && at != nullptr &&
          std::sscanf(at, "\"value\": %lf", &value) == 1) {
        out[name] = value;
      }
    }
    if (pclose(pipe) != 0)
      std::cerr << "bench_cpp: " << command << " failed; its floors are missing\n";
  }
  return out;
}

void Print(const Row& row) {
  char ratio[32] = "";
  if (row.floor > 0) std::snprintf(ratio, sizeof ratio, "%.2f", row.sheaf / row.floor);
  std::printf("%-44s %14.4g %14.4g %8s  %s\n", row.name.c_str(), row.sheaf, row.floor, ratio,
              row.unit.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::string json, only;
  bool floors = true;
  bench::Arguments arguments("bench cpp",
                             "Calls, objects and actors of a driver in C++ on one node.");
  arguments.Text("--json", "FILE", "a file for the figures", json);
  arguments.Text("--only", "WORDS", "a part of the names of the rows that are wanted", only);
  arguments.AtLeast("--seconds", "S", "seconds for a row, at least 0.05", 0.05, seconds_per_row);
  arguments.Flag("--no-floors", "without the figures of this machine", [&] { floors = false; });
  arguments.Parse(argc, argv);
  const auto start = Clock::now();
  sheaf::InitOptions options;
  options.cpus = 2;
  options.store_bytes = int64_t{2} << 30;
  sheaf::Init(argc, argv, options);
  const double attached = Seconds(start);
  sheaf::Get(sheaf::Task(Nothing).Remote(1));
  const double first = Seconds(start);
  const double megabytes = DescendantsMegabytes();

  std::map<std::string, double> floor;
  if (floors) {
    floor = RunFloors(std::filesystem::path(argv[0]).parent_path());
    floor["fork"] = ForkRate();
  }
  std::vector<Row> rows;
  std::printf("%-44s %14s %14s %8s\n", "", "Sheaf", "floor", "ratio");
  const auto wants = [&](const std::string& name) {
    return only.empty() || name.find(only) != std::string::npos || only.find(name) == 0;
  };
  auto add = [&](const std::string& name, const std::string& unit, bool higher, double floor_value,
                 const std::function<double()>& measure) {
    if (!wants(name)) return;
    rows.push_back({name, unit, higher, measure(), floor_value});
    Print(rows.back());
  };

  add("node start to attached driver", "ms", false, 0, [&] { return attached * 1e3; });
  add("node start to first C++ result", "ms", false, 0, [&] { return first * 1e3; });
  add("node and workers before the first put, PSS", "MB", false, 0, [&] { return megabytes; });
  {
    auto echo = sheaf::Actor<Echo>().Remote();
    auto call = echo.Task(&Echo::Call);
    sheaf::Get(call.Remote(1));
    add("actor calls, sync", "calls/s", true, floor["floor_ring_sync_spinning"], [&] {
      return Rate([&] {
        for (int i = 0; i < 500; ++i) {
          if (sheaf::Get(call.Remote(i)) != i) std::abort();
        }
        return size_t{500};
      });
    });
    add("actor calls, sync, asleep between", "calls/s", true, floor["floor_ring_sync_asleep"], [&] {
      // Each call finds both sides asleep: only the call itself is timed.
      double total = 0;
      for (int i = 0; i < 200; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const auto begin = Clock::now();
        sheaf::Get(call.Remote(i));
        total += Seconds(begin);
      }
      return 200 / total;
    });
    std::vector<sheaf::ObjectRef<int>> refs(1000);
    add("actor calls, 1,000 in flight", "calls/s", true, floor["floor_ring_1000_in_flight"], [&] {
      return Rate([&] {
        for (int i = 0; i < 1000; ++i) refs[i] = call.Remote(i);
        const std::vector<int> values = sheaf::Get(refs);
        if (values[999] != 999) std::abort();
        return size_t{1000};
      });
    });
    add("actor calls, 4 driver threads, 1,000 in flight", "calls/s", true,
        floor["floor_ring_1000_in_flight"], [&] {
          return Rate([&] {
            std::vector<std::thread> threads;
            for (int t = 0; t < 4; ++t) {
              threads.emplace_back([&] {
                auto mine = echo.Task(&Echo::Call);
                std::vector<sheaf::ObjectRef<int>> my_refs(1000);
                for (int round = 0; round < 5; ++round) {
                  for (int i = 0; i < 1000; ++i) my_refs[i] = mine.Remote(i);
                  sheaf::Get(my_refs);
                }
              });
            }
            for (auto& thread : threads) thread.join();
            return size_t{20'000};
          });
        });
  }
  {
    auto task = sheaf::Task(Nothing);
    sheaf::Get(task.Remote(1));
    add("tasks, sync", "tasks/s", true, floor["floor_ring_sync_spinning"], [&] {
      return Rate([&] {
        for (int i = 0; i < 500; ++i) sheaf::Get(task.Remote(i));
        return size_t{500};
      });
    });
    std::vector<sheaf::ObjectRef<int>> refs(1000);
    add("tasks, 1,000 in flight", "tasks/s", true, floor["floor_ring_1000_in_flight"], [&] {
      return Rate([&] {
        for (int i = 0; i < 1000; ++i) refs[i] = task.Remote(i);
        sheaf::Get(refs);
        return size_t{1000};
      });
    });
    add("memory of a queued task", "B", false, 0, [&] {
      // Nobody has the resource, so they stay queued. Without the reference that the user holds.
      auto never = sheaf::Task(Nothing);
      never.Resource("nobody has this", 1);
      std::vector<sheaf::ObjectRef<int>> queued(1'000'000);
      queued[0] = never.Remote(0);
      const double before = ResidentBytes();
      for (size_t i = 1; i < queued.size(); ++i) queued[i] = never.Remote(static_cast<int>(i));
      const double bytes = (ResidentBytes() - before) / static_cast<double>(queued.size() - 1);
      for (const auto& task : queued) sheaf::Cancel(task);
      return bytes;
    });
    add("1,000,000 queued tasks, submit and get", "s", false, 0, [&] {
      std::vector<sheaf::ObjectRef<int>> many(1'000'000);
      const auto begin = Clock::now();
      for (int i = 0; i < 1'000'000; ++i) many[i] = task.Remote(i);
      sheaf::Get(many);
      return Seconds(begin);
    });
  }
  add("put and get of a small value", "pairs/s", true, floor["floor_local_put_and_get"], [&] {
    return Rate([&] {
      for (int i = 0; i < 1000; ++i) {
        if (sheaf::Get(sheaf::Put(i)) != i) std::abort();
      }
      return size_t{1000};
    });
  });
  add("wait on 1,000 references one by one", "ms", false, 0, [&] {
    std::vector<sheaf::ObjectRef<int>> refs;
    for (int i = 0; i < 1000; ++i) refs.push_back(sheaf::Put(i));
    return Time(5,
                [&] {
                  auto left = refs;
                  while (!left.empty()) left = sheaf::Wait(std::move(left), 1).not_ready;
                }) *
           1e3;
  });
  add("10,000 references in one object", "ms", false, 0, [&] {
    return Time(5,
                [&] {
                  std::vector<sheaf::ObjectRef<int>> refs;
                  for (int i = 0; i < 10'000; ++i) refs.push_back(sheaf::Put(i));
                  const auto all = sheaf::Put(refs);
                  sheaf::Get(sheaf::Get(all));
                }) *
           1e3;
  });
  {
    std::vector<double> large;
    add("put of 800 MB", "GB/s", true, floor["floor_memcpy_warm_800mb_1_thread"], [&] {
      large.assign(100'000'000, 1.0);
      {
        auto warm = sheaf::Put(large);
      }
      return 0.8 / Time(3, [&] { auto ref = sheaf::Put(large); });
    });
    add("put of 800 MB, built in place", "ms", false, 0, [&] {
      return Time(3, [&] { auto ref = sheaf::CreateArray<double>(100'000'000).Seal(); }) * 1e3;
    });
  }
  add("actor creation, 100 at once", "actors/s", true, floor["fork"], [&] {
    const auto begin = Clock::now();
    std::vector<sheaf::ActorHandle<Echo>> actors;
    std::vector<sheaf::ObjectRef<int>> refs;
    for (int i = 0; i < 100; ++i) {
      actors.push_back(sheaf::Actor<Echo>().Cpus(0).Remote());
      refs.push_back(actors.back().Task(&Echo::Call).Remote(i));
    }
    sheaf::Get(refs);
    return 100 / Seconds(begin);
  });
  {
    std::vector<sheaf::ActorHandle<Echo>> actors;
    const auto in_turn = [&](int each) {
      while (actors.size() < 1000) {
        actors.push_back(sheaf::Actor<Echo>().Cpus(0).Remote());
        if (actors.size() % 100 == 0) sheaf::Get(actors.back().Task(&Echo::Call).Remote(0));
      }
      return Rate([&] {
        std::vector<sheaf::ObjectRef<int>> refs;
        for (int call = 0; call < each; ++call) {
          for (auto& actor : actors) refs.push_back(actor.Task(&Echo::Call).Remote(call));
        }
        sheaf::Get(refs);
        return refs.size();
      });
    };
    // With one call for each at a time, each wakes a process.
    add("1,000 actors called in turn, 1,000 in flight", "calls/s", true, 0,
        [&] { return in_turn(1); });
    add("1,000 actors called in turn, 100,000 in flight", "calls/s", true, 0,
        [&] { return in_turn(100); });
  }
  add("placement group create and remove", "pairs/s", true, 0, [&] {
    return Rate([&] {
      std::vector<sheaf::PlacementGroup> groups;
      for (int i = 0; i < 100; ++i) groups.push_back(sheaf::CreateGroup({{{"CPU", 0.01}}}));
      for (auto& group : groups) group.Wait(std::chrono::seconds(10));
      for (auto& group : groups) group.Remove();
      return size_t{100};
    });
  });

  if (!json.empty()) {
    std::ofstream out(json);
    out << "{\"rows\": [";
    for (size_t i = 0; i < rows.size(); ++i) {
      const Row& row = rows[i];
      out << (i == 0 ? "\n" : ",\n") << "  {\"name\": \"" << row.name << "\", \"unit\": \""
          << row.unit << "\", \"better\": \"" << (row.higher_is_better ? "higher" : "lower")
          << "\", \"sheaf\": " << row.sheaf << ", \"floor\": ";
      if (row.floor > 0) {
        out << row.floor << "}";
      } else {
        out << "null}";
      }
    }
    out << "\n]}\n";
    if (!out) {
      std::cerr << "bench_cpp: cannot write " << json << "\n";
      return 1;
    }
  }
  sheaf::Shutdown();
  return 0;
}
