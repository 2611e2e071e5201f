// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What frames and blocks cost between two daemons over their links, and what calls, objects and
// actors cost in a cluster of five nodes on this machine, plain and under TLS, beside what bare
// sockets (benchmarks/floor/floor_tcp) and bare gRPC (floor_grpc) do in the same run.
//   bench_cluster [--json FILE] [--only TEXT] [--seconds N] [--no-floors]
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
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/memory/heap.h"
#include "benchmarks/arguments.h"
#include "benchmarks/cluster_rows.h"
#include "rpc/links.h"
#include "rpc/security/credentials.h"

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
  double floor, grpc;  // Of bare sockets, and of bare gRPC; 0: none applies.
  bool lower_is_better;
};

void RunFloor(const std::filesystem::path& program, std::map<std::string, double>* out) {
  const std::string command = program.string() + " --seconds 1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return;
  char line[512];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    char name[128];
    double value = 0;
    const char* at = std::strstr(line, "\"value\":");
    if (std::sscanf(line, "{\"name\": \"%127[^\"]\"", name) == 1 && at != nullptr &&
        std::sscanf(at, "\"value\": %lf", &value) == 1) {
      (*out)[name] = value;
    }
  }
  if (pclose(pipe) != 0) {
    std::cerr << "bench_cluster: " << command << " failed; its floors are missing\n";
  }
}

std::map<std::string, double> RunFloors(const std::filesystem::path& directory) {
  std::map<std::string, double> out;
  for (const char* program : {"floor_tcp", "floor_grpc"})
    RunFloor(directory / "floor" / program, &out);
  return out;
}

// `tls_directory` empty: not encrypted.
LinksOptions Options(const std::string& tls_directory) {
  LinksOptions options;
  options.listen_address = "127.0.0.1:0";
  options.version = "bench";
  if (!tls_directory.empty()) {
    auto loaded = sheaf::LoadCertificates(tls_directory);
    if (!loaded.ok()) {
      std::cerr << "bench_cluster: " << loaded.status() << "\n";
      std::_Exit(1);
    }
    options.credentials = *std::move(loaded);
  }
  options.credentials.token = std::string(32, 'b');
  return options;
}

// The second daemon: sends each frame back, and gives blocks.
[[noreturn]] void Serve(int out, const std::string& tls_directory) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto bytes = std::make_shared<std::string>(kBulkBytes, 'b');
  Links* links = nullptr;
  LinksOptions options = Options(tls_directory);
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

// The second daemon as the first one finds it.
struct Other {
  pid_t process = -1;
  std::string address;
};
Other StartOther(const std::string& tls_directory) {  // Before gRPC has a thread.
  int pipes[2];
  Other other;
  char address[128] = "";
  if (pipe(pipes) == 0 && (other.process = fork()) == 0) Serve(pipes[1], tls_directory);
  if (other.process < 0 || read(pipes[0], address, sizeof address - 1) <= 0) {
    std::cerr << "bench_cluster: the second process did not start\n";
    std::_Exit(1);
  }
  address[std::strcspn(address, "\n")] = '\0';
  other.address = address;
  return other;
}

// The first daemon.
class Caller {
 public:
  Caller(const std::string& address, const std::string& tls_directory) {
    LinksOptions options = Options(tls_directory);
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
        if (!(*block)->CopyTo({to[which].data(), to[which].size()}).ok()) std::_Exit(1);
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

// Measures rows and prints each at once.
class Table {
 public:
  Table(std::string only, bool with_floors) : only_(std::move(only)) {
    if (with_floors)
      floors_ = RunFloors(std::filesystem::canonical("/proc/self/exe").parent_path());
    std::printf("%-52s %12s %12s %6s %12s %6s\n", "", "sheaf", "bare", "ratio", "gRPC", "ratio");
  }
  // `floor`, `grpc`: of the floors, by name; empty: none applies.
  void Add(const std::string& name, const char* unit, const char* floor, const char* grpc,
           const std::function<double()>& measure) {
    if (!only_.empty() && name.find(only_) == std::string::npos) return;
    const bool lower = std::strcmp(unit, "s") == 0 || std::strcmp(unit, "us") == 0;
    rows_.push_back({name, unit, measure(), Floor(floor), Floor(grpc), lower});
    Print(rows_.back());
  }
  // False: `file` cannot be written.
  bool Write(const std::string& file) const;

 private:
  double Floor(const char* name) const {
    const auto found = floors_.find(name);
    return found == floors_.end() ? 0 : found->second;
  }
  static void Print(const Row& row) {
    char bare[32] = "", grpc[32] = "";
    if (row.floor > 0) std::snprintf(bare, sizeof bare, "%.2f", row.sheaf / row.floor);
    if (row.grpc > 0) std::snprintf(grpc, sizeof grpc, "%.2f", row.sheaf / row.grpc);
    std::printf("%-52s %12.4g %12.4g %6s %12.4g %6s  %s\n", row.name.c_str(), row.sheaf, row.floor,
                bare, row.grpc, grpc, row.unit.c_str());
    std::fflush(stdout);
  }
  const std::string only_;
  std::map<std::string, double> floors_;
  std::vector<Row> rows_;
};

bool Table::Write(const std::string& file) const {
  std::ofstream out(file);
  const auto floor = [](double value) { return value > 0 ? std::to_string(value) : "null"; };
  out << "{\"rows\": [";
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    out << (i == 0 ? "\n" : ",\n") << "  {\"name\": \"" << row.name << "\", \"unit\": \""
        << row.unit << "\", \"better\": \"" << (row.lower_is_better ? "lower" : "higher")
        << "\", \"sheaf\": " << row.sheaf << ", \"floor\": " << floor(row.floor)
        << ", \"grpc\": " << floor(row.grpc) << "}";
  }
  out << "\n]}\n";
  return static_cast<bool>(out);
}

// What frames and blocks cost over one link. `tls`: behind each row's name.
void MeasureLink(Table& table, Caller& caller, bool tls) {
  const std::string under = tls ? ", TLS" : "";
  const char* const ping_pong = tls ? "floor_tls_ping_pong" : "floor_tcp_ping_pong";
  const char* const bytes = tls ? "floor_tls_bytes" : "floor_tcp_bytes";
  const auto grpc = [&](const char* name) { return tls ? "" : name; };
  table.Add("frame there and back" + under, "1/s", ping_pong, grpc("floor_grpc_stream_ping_pong"),
            [&] { return Rate([&] { return caller.Frames(100, 1, 1, 64); }); });
  table.Add("frames there and back, 512 in flight" + under, "frames/s", "",
            grpc("floor_grpc_stream_64_frames"),
            [&] { return Rate([&] { return caller.Frames(12'800, 512, 64, kFrameBytes); }); });
  table.Add("frames there and back, 8192 in flight" + under, "frames/s", "",
            grpc("floor_grpc_stream_64_frames"),
            [&] { return Rate([&] { return caller.Frames(65'536, 8'192, 512, kFrameBytes); }); });
  table.Add("block of 4 MiB" + under, "GB/s", bytes, grpc("floor_grpc_bytes_4mib"),
            [&] { return Rate([&] { return caller.Fetch(8, 1); }) / 1e9; });
  table.Add("blocks of 4 MiB, 2 at once" + under, "GB/s", bytes,
            grpc("floor_grpc_bytes_4mib_2_at_once"),
            [&] { return Rate([&] { return caller.Fetch(8, 2); }) / 1e9; });
}

// What calls and objects cost between nodes of a cluster.
void MeasureNodes(Table& table, bench::ClusterNodes& cluster, bool tls) {
  const std::string under = tls ? ", TLS" : "";
  const char* const ping_pong = tls ? "floor_tls_ping_pong" : "floor_tcp_ping_pong";
  const char* const bytes = tls ? "floor_tls_bytes" : "floor_tcp_bytes";
  const char* const to_four =
      tls ? "floor_tls_256mb_to_4_processes" : "floor_tcp_256mb_to_4_processes";
  const auto grpc = [&](const char* name) { return tls ? "" : name; };
  table.Add("actor call on another node, one by one" + under, "1/s", ping_pong,
            grpc("floor_grpc_stream_ping_pong"), [&] {
              const int calls = static_cast<int>(2'000 * seconds_per_row);
              return Middle([&] { return cluster.CallsOneByOne(calls); });
            });
  table.Add("actor calls on another node, 10,000 in flight" + under, "1/s", "",
            grpc("floor_grpc_stream_64_frames"),
            [&] { return Middle([&] { return cluster.CallsInFlight(500'000, 10'000); }); });
  // Which hop limits: where each has a core, a call takes as long as the largest of these; where
  // they share two, half of their sum.
  for (const char* hop : bench::kHops) {
    table.Add(std::string("CPU of an actor call in flight, ") + hop + under, "us", "", "",
              [&] { return cluster.cpu_per_call(hop); });
  }
  table.Add("tasks on another node, 10,000 in flight" + under, "1/s", "",
            grpc("floor_grpc_stream_64_frames"),
            [&] { return Middle([&] { return cluster.TasksInFlight(200'000, 10'000); }); });
  table.Add("256 MB read on one other node" + under, "GB/s", bytes, grpc("floor_grpc_bytes_4mib"),
            [&] {
              const double seconds = Middle([&] { return cluster.Broadcast(kBroadcastBytes, 1); });
              return kBroadcastBytes / seconds / 1e9;
            });
  // Where four nodes have cores and memory of their own this takes little longer than one
  // transfer; here all share them, and the floor is what four bare processes need.
  table.Add("256 MB read on four other nodes" + under, "s", to_four,
            grpc("floor_grpc_256mb_to_4_processes"),
            [&] { return Middle([&] { return cluster.Broadcast(kBroadcastBytes, 4); }); });
  if (tls) return;
  table.Add("get of 1,000 values of 100 kB of another node", "1/s", "", "",
            [&] { return Middle([&] { return cluster.GetMany(1'000, 100'000); }); });
  table.Add("actors on three nodes, 1,000 made and called", "1/s", "", "",
            [&] { return cluster.Actors(1'000); });
}

// A directory of certificates that goes with the benchmark.
class TlsDirectory {
 public:
  TlsDirectory() {
    std::string pattern = "/tmp/sheaf-bench-tls-XXXXXX";
    parent_ = mkdtemp(pattern.data());
    if (const absl::Status made = sheaf::MakeCertificateSet(path(), {}); !made.ok()) {
      std::cerr << "bench_cluster: " << made << "\n";
      std::_Exit(1);
    }
  }
  ~TlsDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(parent_, ignored);
  }
  std::string path() const { return parent_ + "/tls"; }

 private:
  std::string parent_;
};

}  // namespace

int main(int argc, char** argv) {
  bench::BecomeWorker(argc, argv);
  sheaf::KeepFreedMemory(16 << 20);  // As nodes do.
  std::string json, only;
  bool with_floors = true;
  bench::Arguments arguments("bench cluster",
                             "What travels between nodes: frames, blocks, calls, values.");
  arguments.Text("--json", "FILE", "a file for the figures", json);
  arguments.Text("--only", "WORDS", "a part of the names of the rows that are wanted", only);
  arguments.AtLeast("--seconds", "S", "seconds for a row, at least 0.05", 0.05, seconds_per_row);
  arguments.Flag("--no-floors", "without bare sockets and gRPC", [&] { with_floors = false; });
  arguments.Parse(argc, argv);
  const TlsDirectory tls;
  const std::string directories[] = {"", tls.path()};
  const Other others[] = {StartOther(directories[0]), StartOther(directories[1])};
  Table table(only, with_floors);
  for (size_t i = 0; i < std::size(others); ++i) {
    {
      Caller caller(others[i].address, directories[i]);
      MeasureLink(table, caller, /*tls=*/i == 1);
    }
    kill(others[i].process, SIGKILL);
    waitpid(others[i].process, nullptr, 0);
  }
  for (const std::string& directory : directories) {
    bench::ClusterNodes cluster(argc, argv, 5, directory);
    MeasureNodes(table, cluster, /*tls=*/!directory.empty());
  }
  if (!json.empty() && !table.Write(json)) {
    std::cerr << "bench_cluster: cannot write " << json << "\n";
    return 1;
  }
  return 0;
}
