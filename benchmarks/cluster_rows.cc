// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cluster_rows.h"

#include <sheaf/sheaf.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <thread>

namespace bench {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kBound = 120s;  // Of every wait.

double Seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The text of `name` in one line of JSON.
std::string Field(const std::string& json, const std::string& name) {
  const size_t at = json.find("\"" + name + "\":");
  if (at == std::string::npos) return "";
  size_t begin = json.find_first_not_of(" \"", at + name.size() + 3);
  return json.substr(begin, json.find_first_of("\",}\n", begin) - begin);
}

[[noreturn]] void Give(const std::string& words) {
  std::cerr << "bench_cluster: " << words << "\n";
  std::exit(1);
}

std::string Sheaf() {
  if (const char* path = std::getenv("SHEAF_EXECUTABLE")) return path;
  return std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() / "cli/sheaf";
}

// Of all threads, user and system.
double CpuSeconds(pid_t process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  const std::string line((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  unsigned long user = 0, system = 0;
  const size_t name_end = line.rfind(')');  // The name may hold anything.
  if (name_end == std::string::npos ||
      std::sscanf(line.c_str() + name_end + 1,
                  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2) {
    Give("nothing is known of process " + std::to_string(process));
  }
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// Calls a second: `calls` of them, in batches, of which a new one begins once the oldest is done.
double InFlight(int calls, int in_flight,
                const std::function<sheaf::ObjectRef<uint64_t>(uint64_t)>& call) {
  constexpr int kBatches = 10;
  const int batch = in_flight / kBatches;
  std::vector<std::vector<sheaf::ObjectRef<uint64_t>>> answers(kBatches);
  const auto begin = Clock::now();
  for (int done = 0, which = 0; done < calls; done += batch, which = (which + 1) % kBatches) {
    sheaf::Get(answers[which], kBound);
    answers[which].clear();
    for (int i = 0; i < batch; ++i) answers[which].push_back(call(static_cast<uint64_t>(i)));
  }
  for (auto& last : answers) sheaf::Get(last, kBound);
  return calls / Seconds(begin);
}

}  // namespace

uint64_t Next(uint64_t i) { return i + 1; }
size_t Read(sheaf::Array<uint8_t> bytes) { return bytes.size(); }

using Bytes = std::vector<uint8_t>;
std::vector<sheaf::ObjectRef<Bytes>> PutMany(size_t count, size_t bytes) {
  std::vector<sheaf::ObjectRef<Bytes>> refs;
  for (size_t i = 0; i < count; ++i)
    refs.push_back(sheaf::Put(Bytes(bytes, static_cast<uint8_t>(i))));
  return refs;
}

class Counter {
 public:
  Counter() = default;
  uint64_t Add(uint64_t by) { return sum_ += by; }
  int64_t Process() const { return getpid(); }

 private:
  uint64_t sum_ = 0;
};

SHEAF_REMOTE(Next, Read, PutMany);
SHEAF_ACTOR(Counter, sheaf::Constructor<>, &Counter::Add, &Counter::Process);

struct ClusterNodes::Callee {
  sheaf::ActorHandle<Counter> actor;
  pid_t process;
};

void BecomeWorker(int argc, char** argv) {
  if (std::getenv("SHEAF_WORKER") != nullptr || std::getenv("SHEAF_WORKER_TEMPLATE") != nullptr)
    sheaf::Init(argc, argv);
}

ClusterNodes::ClusterNodes(int argc, char** argv, int nodes, const std::string& tls_directory) {
  std::string pattern = "/tmp/sheaf-bench-XXXXXX";
  directory_ = mkdtemp(pattern.data());
  setenv("SHEAF_DIR", directory_.c_str(), 1);
  setenv("SHEAF_STATE_IN_MEMORY", "1", 1);  // As /tmp may be.
  const std::string tls = tls_directory.empty() ? "" : " --tls-dir " + tls_directory;
  Start("--head" + tls);
  for (int i = 1; i < nodes; ++i) Start("--address " + head_address_ + tls);
  sheaf::InitOptions init;
  init.address = nodes_[0].session;
  sheaf::Init(argc, argv, init);
  for (const Node& node : nodes_) {  // Until the driver's raylet knows it.
    const auto there = sheaf::Strategy::Node(node.number);
    const auto first = sheaf::TryGet(sheaf::Task(Next).Place(there).Remote(uint64_t{0}), kBound);
    if (!first.ok()) Give("node " + std::to_string(node.number) + " runs no task");
  }
  const auto second = sheaf::Strategy::Node(nodes_[1].number);
  callee_.reset(new Callee{sheaf::Actor<Counter>().Cpus(0).Place(second).Remote(), 0});
  callee_->process =
      static_cast<pid_t>(sheaf::Get(callee_->actor.Task(&Counter::Process).Remote(), kBound));
}

ClusterNodes::~ClusterNodes() {
  callee_.reset();
  sheaf::Shutdown();
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    const std::string command =
        Sheaf() + " stop --force --address " + node->session + " >/dev/null 2>&1";
    if (std::system(command.c_str()) != 0) kill(node->pid, SIGKILL);
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void ClusterNodes::Start(const std::string& flags) {
  const std::string command = Sheaf() + " start --json --port 0 --num-cpus 2 --dir " + directory_ +
                              " --object-store-memory 1GiB " + flags;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) Give("cannot run " + command);
  std::string said;
  char buffer[4096];
  for (size_t n = 1; n != 0;) said.append(buffer, n = fread(buffer, 1, sizeof buffer, pipe));
  if (pclose(pipe) != 0) Give("a node did not start: " + command);
  Node node;
  node.session = Field(said, "session");
  node.pid = std::atoi(Field(said, "os_pid").c_str());
  node.number = static_cast<uint32_t>(std::atoi(Field(said, "node").c_str()));
  if (node.session.empty() || node.pid <= 1 || node.number == 0) Give("not understood: " + said);
  if (nodes_.empty()) head_address_ = Field(said, "address");
  nodes_.push_back(std::move(node));
}

double ClusterNodes::CallsOneByOne(int calls) {
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i)
    sheaf::Get(callee_->actor.Task(&Counter::Add).Remote(uint64_t{1}), kBound);
  return calls / Seconds(begin);
}

double ClusterNodes::CallsInFlight(int calls, int in_flight) {
  const pid_t hops[] = {getpid(), nodes_[0].pid, nodes_[1].pid, callee_->process};
  double before[std::size(hops)];
  for (size_t i = 0; i < std::size(hops); ++i) before[i] = CpuSeconds(hops[i]);
  auto add = callee_->actor.Task(&Counter::Add);
  const double rate = InFlight(calls, in_flight, [&](uint64_t) { return add.Remote(uint64_t{1}); });
  for (size_t i = 0; i < std::size(hops); ++i)
    cpu_per_call_[kHops[i]] = (CpuSeconds(hops[i]) - before[i]) / calls * 1e6;
  return rate;
}

double ClusterNodes::TasksInFlight(int tasks, int in_flight) {
  auto next = sheaf::Task(Next).Place(sheaf::Strategy::Node(nodes_[1].number));
  return InFlight(tasks, in_flight, [&](uint64_t i) { return next.Remote(i); });
}

double ClusterNodes::Broadcast(size_t bytes, int readers) {
  const auto object = sheaf::Put(std::vector<uint8_t>(bytes, 1));
  std::vector<sheaf::ObjectRef<size_t>> sizes;
  const auto begin = Clock::now();
  for (int i = 1; i <= readers; ++i) {
    const auto there = sheaf::Strategy::Node(nodes_[static_cast<size_t>(i)].number);
    sizes.push_back(sheaf::Task(Read).Place(there).Remote(object));
  }
  for (const size_t size : sheaf::Get(sizes, kBound)) {
    if (size != bytes) Give("a reader saw " + std::to_string(size) + " bytes");
  }
  return Seconds(begin);
}

double ClusterNodes::GetMany(size_t count, size_t bytes) {
  const auto second = sheaf::Strategy::Node(nodes_[1].number);
  const auto refs = sheaf::Get(sheaf::Task(PutMany).Place(second).Remote(count, bytes), kBound);
  const auto begin = Clock::now();
  const std::vector<Bytes> values = sheaf::Get(refs, kBound);
  const double seconds = Seconds(begin);
  for (size_t i = 0; i < count; ++i) {
    if (values[i].size() != bytes || values[i].back() != static_cast<uint8_t>(i))
      Give("a value of another node is not what it was");
  }
  return static_cast<double>(count) / seconds;
}

double ClusterNodes::Actors(int count) {
  std::vector<sheaf::ActorHandle<Counter>> actors;
  std::vector<sheaf::ObjectRef<uint64_t>> answers;
  const auto begin = Clock::now();
  for (int i = 0; i < count; ++i) {
    const auto there = sheaf::Strategy::Node(nodes_[static_cast<size_t>(i % 3)].number);
    actors.push_back(sheaf::Actor<Counter>().Cpus(0).Place(there).Remote());
    answers.push_back(actors.back().Task(&Counter::Add).Remote(uint64_t{1}));
  }
  for (const uint64_t answer : sheaf::Get(answers, kBound)) {
    if (answer != 1) Give("an actor counted wrong");
  }
  return count / Seconds(begin);
}

}  // namespace bench
