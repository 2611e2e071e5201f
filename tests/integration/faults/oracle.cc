// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/core.h"  // First: it gives the runtime's names their own.

#include "tests/integration/faults/oracle.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>

#include "api/failures.h"
#include "api/process.h"

namespace faults {
namespace fs = std::filesystem;

using sheaf::internal::TheRuntime;

uint64_t seed = 0;
int argc = 0;
char** argv = nullptr;

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::vector<uint64_t> Values(uint64_t id, size_t count) {
  std::vector<uint64_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = Mix(id * 0x9e3779b97f4a7c15u + i);
  return values;
}

bool AreValues(std::span<const uint64_t> values, uint64_t id, size_t count) {
  if (values.size() != count) return false;
  for (size_t i = 0; i < count; ++i) {
    if (values[i] != Mix(id * 0x9e3779b97f4a7c15u + i)) return false;
  }
  return true;
}

bool LongForm() {
  const char* text = std::getenv("FAULT_LONG");
  return text != nullptr && std::string(text) == "1";
}

int Count(int short_form, int long_form) {
  const char* text = std::getenv("FAULT_COUNT");
  if (text != nullptr) return std::atoi(text);
  return LongForm() ? long_form : short_form;
}

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

uint64_t MonotonicNs() {
  return static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
}

void Figures(const std::string& row, const std::string& words) {
  std::cout << "row " << row << ": " << words << std::endl;
}

// --- the system ----------------------------------------------------------------------------------

Scratch::Scratch(uint64_t tmpfs_bytes) {
  const char* base = std::getenv("TMPDIR");
  std::string pattern = std::string(base != nullptr ? base : "/tmp") + "/sheaf-fault-XXXXXX";
  path_ = mkdtemp(pattern.data());
  if (tmpfs_bytes == 0) return;
  // A mount namespace of our own: the file system is gone with the last process in it, however that
  // ends.
  static const bool own =
      unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  const std::string options = "mode=0700,size=" + std::to_string(tmpfs_bytes);
  mounted_ = own && mount("sheaf-fault", path_.c_str(), "tmpfs", 0, options.c_str()) == 0;
  ok_ = mounted_;
}

Scratch::~Scratch() {
  if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string CommandOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

pid_t ParentOf(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(stat, line);
  const size_t end = line.rfind(')');
  return end == std::string::npos ? 0 : std::atoi(line.c_str() + end + 4);
}

std::vector<pid_t> ProcessesOf(const std::string& directory) {
  const std::string mark = "SHEAF_DIR=" + directory;
  std::vector<pid_t> pids;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || pid == getpid()) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string line;
    std::getline(stat, line);
    const size_t end = line.rfind(')');
    if (end == std::string::npos || line[end + 2] == 'Z' || line[end + 2] == 'X') continue;
    std::ifstream environment(entry.path() / "environ");
    std::string variable;
    while (std::getline(environment, variable, '\0')) {
      if (variable != mark) continue;
      pids.push_back(pid);
      break;
    }
  }
  return pids;
}

void KillAll(const std::string& directory) {
  for (const pid_t pid : ProcessesOf(directory)) kill(pid, SIGKILL);
}

namespace {

size_t EntriesOf(const std::string& folder) {
  std::error_code error;
  size_t entries = 0;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    ++entries;
  return entries;
}

size_t DescriptorsOf(pid_t pid) { return EntriesOf("/proc/" + std::to_string(pid) + "/fd"); }

size_t MappingsOf(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  return static_cast<size_t>(
      std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n'));
}

std::string Output(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  char buffer[4096];
  while (pipe != nullptr) {
    const size_t n = fread(buffer, 1, sizeof buffer, pipe);
    if (n == 0) break;
    text.append(buffer, n);
  }
  if (pipe != nullptr) pclose(pipe);
  return text;
}

std::string Sheaf() {
  const char* path = std::getenv("SHEAF_EXECUTABLE");
  return path != nullptr ? path : "sheaf";
}

// A variable of the environment, while this object lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (value.empty()) return;
    set_ = true;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (set_) unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
  bool set_ = false;
};

}  // namespace

// --- the node ------------------------------------------------------------------------------------

NodeState StateOfNode() {
  sheaf::proto::StateQuery query;
  query.set_what(sheaf::proto::StateQuery::STATUS);
  const auto answer = sheaf::internal::ValueOrThrow(
      TheRuntime().Query(query, sheaf::Deadline(sheaf::MonotonicNow(), 10 * sheaf::kSecond)));
  NodeState state;
  state.objects = answer.store().objects();
  state.pinned_bytes = answer.store().pinned_bytes();
  state.used_bytes = answer.store().used_bytes();
  state.spilled_bytes = answer.store().spilled_bytes();
  state.capacity_bytes = answer.store().capacity_bytes();
  state.workers = answer.workers_size();
  for (const auto& worker : answer.workers()) {
    state.leased +=
        worker.state() == "LEASED" || worker.state() == "BLOCKED" || worker.state() == "ACTOR";
  }
  for (const auto& node : answer.nodes()) {
    if (node.state() != "ALIVE") continue;
    state.cpus += static_cast<double>(node.total().amounts().at("CPU")) / 10000;
    const auto free = node.available().amounts().find("CPU");
    if (free != node.available().amounts().end())
      state.cpus_free += static_cast<double>(free->second) / 10000;
  }
  return state;
}

double Metric(const std::string& name, const std::string& label) {
  std::istringstream page(Output("curl -s " + sheaf::MetricsUrl()));
  double sum = 0;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with(name) || line.find(label) == std::string::npos) continue;
    const char after = line[name.size()];
    if (after != ' ' && after != '{') continue;
    sum += std::atof(line.substr(line.rfind(' ') + 1).c_str());
  }
  return sum;
}

Node::Node(const NodeOptions& options) : options_(options), directory_(options.directory) {
  if (directory_.empty()) {
    scratch_.emplace();
    directory_ = scratch_->path() + "/sheaf";
  }
  setenv("SHEAF_DIR", directory_.c_str(), 1);
  setenv("SHEAF_STATE_IN_MEMORY", "1", 1);  // As /tmp may be, and disks that shall be full are.
  if (options_.daemon) StartDaemon("");
  Join();
}

void Node::StartDaemon(const std::string& resume) {
  const Variable failpoints("SHEAF_FAILPOINT", options_.failpoints);
  std::ostringstream command;
  command << Sheaf() << " start --head --num-cpus " << options_.cpus << " --object-store-memory "
          << options_.store_bytes << " --timeout 60 --json";
  if (!resume.empty()) command << " --resume " << resume;
  command << " 2>&1";
  const std::string said = Output(command.str());
  const size_t begin = said.find("\"session\":");
  INFO(said);
  REQUIRE(begin != std::string::npos);
  const size_t quote = said.find('"', begin + 10) + 1;
  session_ = said.substr(quote, said.find('"', quote) - quote);
}

void Node::Join() {
  const Variable failpoints("SHEAF_FAILPOINT", options_.daemon ? "" : options_.failpoints);
  sheaf::InitOptions init;
  init.address = options_.daemon ? session_ : "";
  init.name_space = "faults";
  init.cpus = options_.cpus;
  init.store_bytes = options_.store_bytes;
  init.log_to_driver = false;
  if (!options_.worker_failpoints.empty())
    init.environment["SHEAF_FAILPOINT"] = options_.worker_failpoints;
  sheaf::Init(argc, argv, init);
  session_ = fs::canonical(directory_ + "/latest").string();
  pid_ = 0;
  for (const pid_t pid : ProcessesOf(directory_)) {
    // The lowest: its children look like it until they have become workers.
    if (CommandOf(pid).starts_with("sheaf node") && (pid_ == 0 || pid < pid_)) pid_ = pid;
  }
  REQUIRE(pid_ != 0);
  descriptors_ = DescriptorsOf(pid_);
  mappings_ = MappingsOf(pid_);
}

void Node::Kill() {
  kill(pid_, SIGKILL);
  expects_death_ = true;
}

void Node::Resume() {
  sheaf::Shutdown();
  StartDaemon(session_);
  Join();
  expects_death_ = false;
}

Node::~Node() {
  sheaf::Shutdown();
  if (options_.daemon) Output(Sheaf() + " stop --address " + session_ + " 2>&1");
  std::vector<pid_t> left;
  const bool gone = WaitUntil(10s, [&] { return (left = ProcessesOf(directory_)).empty(); });
  std::string words;
  for (const pid_t pid : left) words += std::to_string(pid) + " " + CommandOf(pid) + "\n";
  KillAll(directory_);
  if (!options_.daemon && !expects_death_) CHECK_FALSE(fs::exists(session_));
  INFO("processes that outlived the node:\n" << words);
  CHECK(gone);
}

std::vector<std::string> Node::SpillFiles() const {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(session_ + "/spill", error), end; !error && entry != end;
       entry.increment(error)) {
    files.push_back(entry->path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void Node::RequireQuiet(int held) {
  NodeState state;
  const auto begin = Clock::now();
  const bool quiet = WaitUntil(45s, [&] {
    state = StateOfNode();
    return state.objects == 0 && state.pinned_bytes == 0 && state.spilled_bytes == 0 &&
           state.leased == held && (held != 0 || state.cpus_free == state.cpus) &&
           SpillFiles().empty();
  });
  INFO("objects " << state.objects << ", pinned " << state.pinned_bytes << ", spilled "
                  << state.spilled_bytes << ", leased " << state.leased << ", CPUs free "
                  << state.cpus_free << " of " << state.cpus << ", spill files "
                  << SpillFiles().size());
  CHECK(quiet);
  // What a worker costs the node: rings, pipes of its output, a pidfd. Thousands of deaths must not
  // add up.
  const size_t workers = static_cast<size_t>(state.workers) + 2;
  const size_t descriptors = DescriptorsOf(pid_);
  const size_t mappings = MappingsOf(pid_);
  CHECK(descriptors <= descriptors_ + 24 * workers);
  CHECK(mappings <= mappings_ + 24 * workers + 40);
  // The whole store can be had again: nobody who died holds an extent.
  if (held == 0) {
    const size_t count = state.capacity_bytes / 16 / sizeof(uint64_t) - 4096;
    std::vector<sheaf::ObjectRef<std::vector<uint64_t>>> refs;
    for (uint64_t i = 0; i < 12; ++i) {
      std::string error;
      auto ref = PutWithin(i, count, 10s, &error);
      INFO("object " << i << " of 12, each a sixteenth of the store: " << error);
      CHECK(ref.has_value());
      if (ref.has_value()) refs.push_back(*ref);
    }
  }
  CHECK(kill(pid_, 0) == 0);
  std::cout << "quiet after " << Seconds(Clock::now() - begin) << " s: " << state.workers
            << " workers, node holds " << descriptors << " descriptors (" << descriptors_
            << " at its start), " << mappings << " mappings (" << mappings_ << ")" << std::endl;
}

// --- counting and filling ------------------------------------------------------------------------

RunMarks::RunMarks(const std::string& folder) : path_(folder + "/runs") {
  std::ofstream(path_).flush();
}

void RunMarks::Add(const std::string& path, uint64_t call) {
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0 || write(fd, &call, sizeof call) != sizeof call) std::abort();
  close(fd);
}

std::vector<std::pair<uint64_t, int>> RunMarks::Counts() const {
  std::ifstream file(path_, std::ios::binary);
  std::map<uint64_t, int> counts;
  for (uint64_t call; file.read(reinterpret_cast<char*>(&call), sizeof call);) ++counts[call];
  return {counts.begin(), counts.end()};
}

int RunMarks::Most() const {
  int most = 0;
  for (const auto& [call, count] : Counts()) most = std::max(most, count);
  return most;
}

FullDisk::FullDisk(const std::string& folder, uint64_t leave_bytes) : path_(folder + "/filler") {
  const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const std::vector<char> block(64 * 1024, 'x');
  size_t step = block.size();
  uint64_t size = 0;
  while (fd >= 0 && step > 0) {  // To the last byte.
    const ssize_t n = write(fd, block.data(), step);
    if (n > 0) size += static_cast<uint64_t>(n);
    if (n < static_cast<ssize_t>(step)) step /= 2;
  }
  if (leave_bytes > 0 && size > leave_bytes &&
      ftruncate(fd, static_cast<off_t>(size - leave_bytes)) != 0)
    std::abort();
  close(fd);
}

void FullDisk::Free() { unlink(path_.c_str()); }

sheaf::v1::ErrorKind KeyPut(const std::string& key, const std::string& value,
                            std::chrono::seconds bound) {
  const auto done =
      TheRuntime().KeyPut("faults", key, value, true, sheaf::Runtime::KeyLife::kUntilDeleted,
                          sheaf::internal::DeadlineAfter(bound));
  return done.ok()
             ? sheaf::v1::ErrorKind::kNone
             : sheaf::internal::InfoOf(done.status(), sheaf::v1::ErrorKind::kGcsStorageFull).kind;
}

std::optional<bool> KeyPutIfAbsent(const std::string& key, const std::string& value,
                                   std::chrono::seconds bound) {
  const auto added =
      TheRuntime().KeyPut("faults", key, value, false, sheaf::Runtime::KeyLife::kUntilDeleted,
                          sheaf::internal::DeadlineAfter(bound));
  return added.ok() ? std::optional<bool>(*added) : std::nullopt;
}

std::optional<std::string> KeyGet(const std::string& key, std::chrono::seconds bound) {
  return sheaf::internal::ValueOrThrow(
      TheRuntime().KeyGet("faults", key, sheaf::internal::DeadlineAfter(bound)));
}

std::optional<sheaf::ObjectRef<std::vector<uint64_t>>> PutWithin(uint64_t id, size_t count,
                                                                 std::chrono::milliseconds bound,
                                                                 std::string* error) {
  const size_t bytes = count * sizeof(uint64_t);
  auto buffer = TheRuntime().Create(sheaf::internal::kArrayHeadBytes + bytes,
                                    sheaf::internal::DeadlineAfter(bound));
  if (!buffer.ok()) {
    const sheaf::ErrorInfo info =
        sheaf::internal::InfoOf(buffer.status(), sheaf::v1::ErrorKind::kObjectStoreFull);
    *error = info.message;
    if (info.kind != sheaf::v1::ErrorKind::kObjectStoreFull) sheaf::Raise(info);
    return std::nullopt;
  }
  char* const data = reinterpret_cast<char*>(buffer->data());
  sheaf::internal::WriteArrayHead(data, sheaf::internal::KindOf<uint64_t>(), bytes);
  const std::vector<uint64_t> values = Values(id, count);
  std::memcpy(data + sheaf::internal::kArrayHeadBytes, values.data(), bytes);
  sheaf::ObjectHandle handle = sheaf::internal::ValueOrThrow(TheRuntime().Seal(*std::move(buffer)));
  return sheaf::ObjectRef<std::vector<uint64_t>>::FromHandle(
      sheaf::internal::PublicHandle(std::move(handle)));
}

}  // namespace faults
