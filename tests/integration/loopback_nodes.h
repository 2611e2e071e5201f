// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Several real nodes on this machine, joined over loopback, for a test program that is driver and
// workers too. Included by one file of a program: it holds a remote function.
#pragma once

#include <sheaf/sheaf.h>
#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/wait_until_for_test.h"
#include "tests/catch/run.h"

namespace loopback {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

inline int main_argc = 0;
inline char** main_argv = nullptr;

// The program's main.
inline int Main(int argc, char** argv) {
  main_argc = argc;
  main_argv = argv;
  if (std::getenv("SHEAF_WORKER") != nullptr || std::getenv("SHEAF_WORKER_TEMPLATE") != nullptr) {
    sheaf::Init(argc, argv);  // Does not return.
  }
  return sheaf::RunTests(argc, argv);
}

inline uint32_t WhereAmI() { return sheaf::Context().node; }
SHEAF_REMOTE(WhereAmI);

inline std::string Output(const std::string& command) {
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  std::string text;
  char buffer[4096];
  for (size_t n = 1; pipe != nullptr && n != 0;) {
    n = fread(buffer, 1, sizeof buffer, pipe);
    text.append(buffer, n);
  }
  if (pipe != nullptr) pclose(pipe);
  return text;
}

inline std::string Field(const std::string& json, const std::string& name) {
  const size_t at = json.find("\"" + name + "\":");
  if (at == std::string::npos) return "";
  size_t begin = at + name.size() + 3;
  while (begin < json.size() && json[begin] == ' ') ++begin;
  if (json[begin] == '"') return json.substr(begin + 1, json.find('"', begin + 1) - begin - 1);
  return json.substr(begin, json.find_first_of(",}\n", begin) - begin);
}

inline std::string Sheaf() {
  const char* path = std::getenv("SHEAF_EXECUTABLE");
  return path != nullptr ? path : "sheaf";
}

using sheaf::WaitUntil;

struct Shape {
  int nodes = 2;
  int cpus = 2;  // Of each.
  std::string store = "512MiB";
};

// Several nodes; this process is a driver on the first.
class Cluster {
 public:
  struct Member {
    std::string session;
    uint32_t number = 0;
    pid_t pid = 0;
  };

  explicit Cluster(const Shape& shape) {
    std::string pattern = "/tmp/sheaf-nodes-XXXXXX";
    scratch_ = mkdtemp(pattern.data());
    directory_ = scratch_ + "/sheaf";
    setenv("SHEAF_DIR", directory_.c_str(), 1);
    setenv("SHEAF_STATE_IN_MEMORY", "1", 1);  // As /tmp may be.
    const std::string head = Start("--head --port 0", shape);
    address_ = Field(head, "address");
    for (int i = 1; i < shape.nodes; ++i) Start("--address " + address_, shape);
    sheaf::InitOptions init;
    init.address = members[0].session;
    init.log_to_driver = false;
    sheaf::Init(main_argc, main_argv, init);
    REQUIRE(WaitUntil(30s, [&] { return Alive() == static_cast<size_t>(shape.nodes); }));
    for (size_t i = 0; i < members.size(); ++i) {
      members[i].number = static_cast<uint32_t>(i + 1);
      // The raylet may hear of a node a moment after the control store lists it.
      const auto there = sheaf::Strategy::Node(members[i].number);
      REQUIRE(WaitUntil(60s, [&] {
        return sheaf::TryGet(sheaf::Task(WhereAmI).Place(there).Remote(), 60s).ok();
      }));
    }
  }
  ~Cluster() {
    sheaf::Shutdown();
    for (auto member = members.rbegin(); member != members.rend(); ++member) {
      if (member->pid != 0) Output(Sheaf() + " stop --force --address " + member->session);
    }
    for (const Member& member : members) {
      if (member.pid != 0) kill(member.pid, SIGKILL);
    }
    std::error_code ignored;
    fs::remove_all(scratch_, ignored);
  }

  size_t Alive() const {
    size_t alive = 0;
    for (const sheaf::NodeInfo& node : sheaf::Nodes()) alive += node.state == "ALIVE";
    return alive;
  }
  uint64_t StoreBytes(size_t member) const {
    const std::string json =
        Output(Sheaf() + " status --json --address " + members[member].session);
    return std::strtoull(Field(json, "used_bytes").c_str(), nullptr, 10);
  }
  bool AllEmpty() const {
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i].pid != 0 && StoreBytes(i) != 0) return false;
    }
    return true;
  }
  void Kill(size_t member) {
    kill(members[member].pid, SIGKILL);
    members[member].pid = 0;
  }
  void Signal(size_t member, int signal) const { kill(members[member].pid, signal); }

  std::vector<Member> members;

 private:
  std::string Start(const std::string& how, const Shape& shape) {
    const std::string said =
        Output(Sheaf() + " start " + how + " --timeout 60 --num-cpus " +
               std::to_string(shape.cpus) + " --object-store-memory " + shape.store + " --json");
    INFO(said);
    const std::string session = Field(said, "session");
    REQUIRE(!session.empty());
    const pid_t pid = std::atoi(Field(said, "os_pid").c_str());
    REQUIRE(pid > 0);
    members.push_back({session, 0, pid});
    return said;
  }
  std::string scratch_, directory_, address_;
};

}  // namespace loopback
