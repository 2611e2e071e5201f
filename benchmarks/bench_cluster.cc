// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What frames and blocks cost between two daemons over their links, and what calls, objects and
// actors cost in a cluster of five nodes on this machine, beside the floor of each
// (benchmarks/floor/floor_grpc) measured in the same run.
//   bench_cluster [--json FILE] [--only TEXT] [--seconds N] [--no-floors]
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "benchmarks/cluster_rows.h"
#include "rpc/links.h"

namespace {

using Clock = std::chrono::steady_clock;
using sheaf::Links;
using sheaf::LinksOptions;
using sheaf::ProcessId;

constexpr ProcessId kOne{1, 0}, kTwo{2, 0};
constexpr size_t kBulkBytes = 4 << 20;
constexpr size_t kFrameBytes = 128;
constexpr size_t kBroadcastBytes = 256'000'000;

double seconds_per_row = 1.0;

double Seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The median rate of five rounds.
double Rate(const std::function<double()>& batch) {
  batch();
  std::vector<double> rates;
  for (int round = 0; round < 5; ++round) {
    const auto begin = Clock::now();
    double done = 0;
    do {
      done += batch();
    } while (Seconds(begin) < seconds_per_row / 5);
    rates.push_back(done / Seconds(begin));
  }
  std::sort(rates.begin(), rates.end());
  return rates[2];
}

// The middle one of three.
double Middle(const std::function<double()>& measure) {
  std::vector<double> all = {measure(), measure(), measure()};
  std::sort(all.begin(), all.end());
  return all[1];
}

struct Row {
  std::string name, unit;
  double sheaf;
  double floor;  // 0: none applies.
  bool lower_is_better;
};

std::map<std::string, double> RunFloors(const std::filesystem::path& directory) {
  std::map<std::string, double> out;
  const std::string command = (directory / "floor" / "floor_grpc").string() + " --seconds 1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return out;
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
  if (pclose(pipe) != 0) {
    std::cerr << "bench_cluster: " << command << " failed; its floors are missing\n";
  }
  return out;
}

LinksOptions Options() {
  LinksOptions options;
  options.listen_address = "127.0.0.1:0";
  options.version = "bench";
  options.credentials.token = std::string(32, 'b');
  return options;
}

// The second daemon: sends each frame back, and gives blocks.
[[noreturn]] void Serve(int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto bytes = std::make_shared<std::string>(kBulkBytes, 'b');
  Links* links = nullptr;
  LinksOptions options = Options();
  options.on_frames = [&](ProcessId peer, std::unique_ptr<sheaf::LinkBatch> batch) {
    batch->ForEach([&](const sheaf::LinkFrame& frame) {
      links->Send(kTwo, peer, {kTwo, peer, frame.lane, frame.kind, frame.body});
    });
    links->Flush();
  };
  options.on_fetch = [&](ProcessId, std::string, LinksOptions::Respond respond) {
    respond(sheaf::Block{"head", {bytes->data(), bytes->size()}, bytes});
  };
  auto started = Links::Start(options);
  if (!started.ok()) {
    std::cerr << "bench_cluster: " << started.status() << "\n";
    std::_Exit(1);
  }
  links = started->get();
  links->AddSelf(kTwo);
  const std::string address = links->address() + "\n";
  if (write(out, address.data(), address.size()) < 0) std::_Exit(1);
  while (true) pause();
}

// The first daemon.
class Caller {
 public:
  explicit Caller(const std::string& address) {
    LinksOptions options = Options();
    options.on_frames = [this](ProcessId, std::unique_ptr<sheaf::LinkBatch> batch) {
      uint64_t frames = 0;
      batch->ForEach([&](const sheaf::LinkFrame&) { ++frames; });
      std::lock_guard lock(mutex_);
      back_ += frames;
      changed_.notify_all();
    };
    auto started = Links::Start(options);
    if (!started.ok()) std::_Exit(1);
    links_ = std::move(*started);
    links_->AddSelf(kOne);
    links_->SetAddress(kTwo, address);
  }
  // `count` frames there and back, at most `in_flight` on their way, `batch` of them per Flush.
  double Frames(uint64_t count, uint64_t in_flight, uint64_t batch, size_t bytes) {
    const std::string body(bytes, 'f');
    const uint64_t limit = sent_ + count;
    while (sent_ < limit) {
      for (uint64_t i = 0; i < batch; ++i, ++sent_) {
        links_->Send(kOne, kTwo,
                     {kOne, kTwo, sheaf::Lane::kWork, sheaf::FrameKind::kPushTask, body});
      }
      links_->Flush();
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return sent_ - back_ + batch <= in_flight || back_ == sent_; });
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return back_ == sent_; });
    return static_cast<double>(count);
  }
  // `count` blocks, `at_once` on their way; bytes.
  double Fetch(int count, int at_once) {
    std::vector<std::string> to(static_cast<size_t>(at_once), std::string(kBulkBytes, '\0'));
    int asked = 0, done = 0, running = 0;
    std::function<void(size_t)> next = [&](size_t which) {
      links_->Fetch(kOne, kTwo, "please", 60 * sheaf::kSecond, [&, which](auto block) {
        if (!block.ok() || (*block)->size() != kBulkBytes) {
          std::cerr << "bench_cluster: fetch: " << block.status() << "\n";
          std::_Exit(1);
        }
        (*block)->CopyTo({to[which].data(), to[which].size()});
        bool more;
        {
          std::lock_guard lock(mutex_);
          ++done;
          more = asked < count;
          asked += more ? 1 : 0;
          running -= more ? 0 : 1;
          if (running == 0) changed_.notify_all();
        }
        if (more) next(which);
      });
    };
    asked = running = at_once;
    for (int i = 0; i < at_once; ++i) next(static_cast<size_t>(i));
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running == 0; });
    return static_cast<double>(done) * kBulkBytes;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t sent_ = 0, back_ = 0;
  std::unique_ptr<Links> links_;
};

void Print(const Row& row) {
  char ratio[32] = "";
  if (row.floor > 0) std::snprintf(ratio, sizeof ratio, "%.2f", row.sheaf / row.floor);
  std::printf("%-44s %14.4g %14.4g %8s  %s\n", row.name.c_str(), row.sheaf, row.floor, ratio,
              row.unit.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  bench::BecomeWorker(argc, argv);
  mallopt(M_MMAP_THRESHOLD, 8 << 20);  // As nodes do.
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  std::string json, only;
  bool with_floors = true;
  for (int i = 1; i < argc; ++i) {
    with_floors = with_floors && std::strcmp(argv[i], "--no-floors") != 0;
  }
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) json = argv[i + 1];
    if (std::strcmp(argv[i], "--only") == 0) only = argv[i + 1];
    if (std::strcmp(argv[i], "--seconds") == 0) {
      seconds_per_row = std::max(0.05, std::atof(argv[i + 1]));
    }
  }
  int pipes[2];
  if (pipe(pipes) != 0) return 1;
  const pid_t child = fork();  // Before gRPC has a thread.
  if (child == 0) Serve(pipes[1]);
  char address[128] = "";
  if (child < 0 || read(pipes[0], address, sizeof address - 1) <= 0) {
    std::cerr << "bench_cluster: the second process did not start\n";
    return 1;
  }
  address[std::strcspn(address, "\n")] = '\0';

  std::map<std::string, double> floors;
  if (with_floors) {
    floors = RunFloors(std::filesystem::canonical("/proc/self/exe").parent_path());
  }
  std::vector<Row> rows;
  std::printf("%-44s %14s %14s %8s\n", "", "sheaf", "floor", "ratio");
  const auto add = [&](const char* name, const char* unit, const char* floor,
                       const std::function<double()>& measure) {
    if (!only.empty() && std::strstr(name, only.c_str()) == nullptr) return;
    const bool lower = std::strcmp(unit, "s") == 0 || std::strcmp(unit, "us") == 0;
    rows.push_back({name, unit, measure(), floor[0] == '\0' ? 0 : floors[floor], lower});
    Print(rows.back());
  };
  {
    Caller caller(address);
    add("frame there and back", "1/s", "floor_grpc_stream_ping_pong",
        [&] { return Rate([&] { return caller.Frames(100, 1, 1, 64); }); });
    add("frames there and back, 512 in flight", "frames/s", "floor_grpc_stream_64_frames",
        [&] { return Rate([&] { return caller.Frames(12'800, 512, 64, kFrameBytes); }); });
    add("frames there and back, 8192 in flight", "frames/s", "floor_grpc_stream_64_frames",
        [&] { return Rate([&] { return caller.Frames(65'536, 8'192, 512, kFrameBytes); }); });
    add("block of 4 MiB", "GB/s", "floor_grpc_bytes_4mib",
        [&] { return Rate([&] { return caller.Fetch(8, 1); }) / 1e9; });
    add("blocks of 4 MiB, 2 at once", "GB/s", "floor_grpc_bytes_4mib_2_at_once",
        [&] { return Rate([&] { return caller.Fetch(8, 2); }) / 1e9; });
    if (floors["floor_tcp_bytes"] > 0) {
      std::printf("(bare TCP: %.3g GB/s)\n", floors["floor_tcp_bytes"]);
    }
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  {
    bench::ClusterNodes cluster(argc, argv, 5);
    add("actor call on another node, one by one", "1/s", "floor_grpc_stream_ping_pong",
        [&] { return Middle([&] { return cluster.CallsOneByOne(2'000); }); });
    add("actor calls on another node, 10,000 in flight", "1/s", "floor_grpc_stream_64_frames",
        [&] { return Middle([&] { return cluster.CallsInFlight(500'000, 10'000); }); });
    // Which hop limits: where each has a core, a call takes as long as the largest of these; where
    // they share two, half of their sum.
    for (const char* hop : bench::kHops) {
      add((std::string("CPU of an actor call in flight, ") + hop).c_str(), "us", "",
          [&] { return cluster.cpu_per_call(hop); });
    }
    add("tasks on another node, 10,000 in flight", "1/s", "floor_grpc_stream_64_frames",
        [&] { return Middle([&] { return cluster.TasksInFlight(200'000, 10'000); }); });
    add("256 MB read on one other node", "GB/s", "floor_grpc_bytes_4mib", [&] {
      return kBroadcastBytes / Middle([&] { return cluster.Broadcast(kBroadcastBytes, 1); }) / 1e9;
    });
    // Where four nodes have cores and memory of their own this takes little longer than one
    // transfer; here all share them, and the floor is what four bare processes need.
    add("256 MB read on four other nodes", "s", "floor_grpc_256mb_to_4_processes",
        [&] { return Middle([&] { return cluster.Broadcast(kBroadcastBytes, 4); }); });
    add("get of 1,000 values of 100 kB of another node", "1/s", "",
        [&] { return Middle([&] { return cluster.GetMany(1'000, 100'000); }); });
    add("actors on three nodes, 1,000 made and called", "1/s", "",
        [&] { return cluster.Actors(1'000); });
  }

  if (!json.empty()) {
    std::ofstream out(json);
    out << "{\"rows\": [";
    for (size_t i = 0; i < rows.size(); ++i) {
      const Row& row = rows[i];
      out << (i == 0 ? "\n" : ",\n") << "  {\"name\": \"" << row.name << "\", \"unit\": \""
          << row.unit << "\", \"better\": \"" << (row.lower_is_better ? "lower" : "higher")
          << "\", \"sheaf\": " << row.sheaf << ", \"floor\": ";
      if (row.floor > 0) {
        out << row.floor << "}";
      } else {
        out << "null}";
      }
    }
    out << "\n]}\n";
    if (!out) {
      std::cerr << "bench_cluster: cannot write " << json << "\n";
      return 1;
    }
  }
  return 0;
}
