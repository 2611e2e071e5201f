// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Row 7: a driver is killed with work queued and strays running.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "tests/integration/faults/oracle.h"
#include "tests/integration/faults/second_driver.h"

namespace faults {
namespace {

constexpr int kQueued = 10'000;
constexpr int kRunning = 3;  // On 4 CPUs; the detached actor needs one only to be placed.

// Marks that it runs, with a child and a grandchild that fled to a session of its own, and ends
// never.
int DriversHold(std::string folder, int number) {
  if (fork() == 0) {
    while (true) pause();
  }
  if (fork() == 0) {
    setsid();
    if (fork() == 0) setsid();
    while (true) pause();
  }
  std::ofstream(folder + "/holds-" + std::to_string(number)).flush();
  while (true) pause();
}

class DriversClerk {
 public:
  DriversClerk() = default;
  int Count() { return ++count_; }
  int Pid() const { return getpid(); }

 private:
  int count_ = 0;
};

SHEAF_REMOTE(DriversHold);
SHEAF_ACTOR(DriversClerk, sheaf::Constructor<>, &DriversClerk::Count, &DriversClerk::Pid);

}  // namespace

int RunSecondDriver() {
  const std::string folder = std::getenv("FAULT_FOLDER");
  sheaf::InitOptions init;
  init.name_space = "faults";
  init.log_to_driver = false;
  sheaf::Init(argc, argv, init);
  auto clerk = sheaf::Actor<DriversClerk>().Name("clerk").Detached().Remote();
  sheaf::Get(clerk.Task(&DriversClerk::Count).Remote(), 30s);
  std::vector<sheaf::ObjectRef<int>> tasks;
  for (int i = 0; i < kQueued; ++i) tasks.push_back(sheaf::Task(DriversHold).Remote(folder, i));
  if (!WaitUntil(30s, [&] {
        int holding = 0;
        for (const auto& entry : std::filesystem::directory_iterator(folder)) {
          holding += entry.path().filename().string().starts_with("holds-");
        }
        return holding >= kRunning;
      })) {
    return 1;
  }
  std::ofstream(folder + "/running").flush();
  while (true) pause();
}

TEST_CASE(
    "row 7: a driver is killed with 10,000 tasks queued, and strays of its tasks; a detached actor "
    "answers",
    "[row7]") {
  NodeOptions options;
  options.daemon = true;
  Node node(options);
  double slowest = 0;
  size_t processes = 0;
  const int rounds = Count(2, 20);
  for (int round = 0; round < rounds; ++round) {
    const Scratch marks;
    // Templates of earlier jobs stay for a while.
    const std::vector<pid_t> before = ProcessesOf(node.directory());
    const pid_t driver = fork();
    if (driver == 0) {
      setenv("SHEAF_ADDRESS", node.session().c_str(), 1);
      setenv("FAULT_FOLDER", marks.path().c_str(), 1);
      const int nothing = open("/dev/null", O_RDWR);
      dup2(nothing, STDOUT_FILENO);
      execl("/proc/self/exe", "fault_test", kSecondDriver, nullptr);
      _exit(127);
    }
    REQUIRE(WaitUntil(60s, [&] { return std::filesystem::exists(marks.path() + "/running"); }));
    auto clerk = sheaf::GetActor<DriversClerk>("clerk");
    const pid_t clerk_pid = sheaf::Get(clerk.Task(&DriversClerk::Pid).Remote(), 20s);
    const pid_t template_pid = ParentOf(clerk_pid);
    const auto job = [&] {
      std::vector<pid_t> pids = ProcessesOf(node.directory());
      std::erase_if(pids, [&](pid_t pid) {
        // Of this job, but for the actor and the template that it would be started from again.
        return pid == clerk_pid || pid == template_pid ||
               std::count(before.begin(), before.end(), pid) != 0 ||
               CommandOf(pid).find(kSecondDriver) == std::string::npos;
      });
      return pids;
    };
    processes += job().size();
    CHECK(job().size() >= 1 + 4 * kRunning);
    kill(driver, SIGKILL);
    const auto begin = Clock::now();
    waitpid(driver, nullptr, 0);
    const bool gone = WaitUntil(20s, [&] { return job().empty(); });
    slowest = std::max(slowest, Seconds(Clock::now() - begin));
    std::string left;
    for (const pid_t pid : job()) left += std::to_string(pid) + " " + CommandOf(pid) + "\n";
    INFO("left:\n" << left);
    CHECK(gone);
    CHECK(sheaf::Get(clerk.Task(&DriversClerk::Count).Remote(), 20s) == 2);
    CHECK(sheaf::Get(sheaf::GetActor<DriversClerk>("clerk").Task(&DriversClerk::Pid).Remote(),
                     20s) == clerk_pid);
    sheaf::Kill(clerk);
    clerk = {};
    node.RequireQuiet();
  }
  std::ostringstream words;
  words << rounds << " drivers killed, each with " << kQueued << " tasks queued; " << processes
        << " processes of their jobs gone, at the latest after " << slowest << " s";
  Figures("7", words.str());
}

}  // namespace faults
