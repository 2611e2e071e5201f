// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A driver for node_test.py. `node_driver hold N`: N tasks run for ever, each with a child in its
// process group and one that fled it by setsid; prints "running SESSION" when all do, then waits
// for its standard input to end and shuts down. `node_driver add`: prints 1 + 2, computed by a
// task. `node_driver threads FOLDER`: an actor with threads is inside two methods for ever; prints
// "running" when it is, then waits as above. `node_driver work`: some of everything, for the metrics: 200 tasks and 200 actor calls,
// values put and read, a line printed.
#include <sheaf/sheaf.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

int Add(int a, int b) { return a + b; }
SHEAF_REMOTE(Add);

// Marks in `folder` that it runs, and does so until it is killed.
int Hold(std::string folder, int number) {
  if (fork() == 0) {
    while (true) pause();
  }
  if (fork() == 0) {
    setsid();
    if (fork() == 0) setsid();
    while (true) pause();
  }
  std::printf("task %d holds\n", number);
  std::fflush(stdout);
  std::ofstream(folder + "/" + std::to_string(number)).flush();
  while (true) pause();
}
SHEAF_REMOTE(Hold);

int Say(int number) {
  std::printf("task %d speaks\n", number);
  std::fflush(stdout);
  return number;
}
std::vector<double> Ramp(int count) { return std::vector<double>(static_cast<size_t>(count), 1.0); }
SHEAF_REMOTE(Say, Ramp);
class Counter {
 public:
  Counter() = default;
  int Add(int by) { return sum_ += by; }

 private:
  int sum_ = 0;
};
SHEAF_ACTOR(Counter, sheaf::Constructor<>, &Counter::Add);

// Its methods run until the process ends, and mark in `folder` when the actor went before them.
class Threaded {
 public:
  Threaded() = default;
  ~Threaded() { gone_ = true; }
  int Run(std::string folder, int number) {
    std::ofstream(folder + "/" + std::to_string(number)).flush();
    while (true) {
      usleep(1000);
      if (gone_) std::ofstream(folder + "/gone").flush();
    }
    return 0;
  }

 private:
  static inline std::atomic<bool> gone_ = false;
};
SHEAF_ACTOR(Threaded, sheaf::Constructor<>, &Threaded::Run);

void AwaitMarks(const std::string& folder, int count) {
  for (int i = 0; i < count; ++i) {
    while (access((folder + "/" + std::to_string(i)).c_str(), F_OK) != 0) usleep(1000);
  }
  std::printf("running\n");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
}

void RunThreads(const std::string& folder) {
  auto actor = sheaf::Actor<Threaded>().MaxConcurrency(4).Remote();
  std::vector<sheaf::ObjectRef<int>> calls;
  for (int i = 0; i < 2; ++i) calls.push_back(actor.Task(&Threaded::Run).Remote(folder, i));
  AwaitMarks(folder, 2);
}

void Work() {
  std::vector<sheaf::ObjectRef<int>> results;
  for (int i = 0; i < 200; ++i) results.push_back(sheaf::Task(Add).Remote(i, i));
  auto counter = sheaf::Actor<Counter>().Remote();
  for (int i = 0; i < 200; ++i) results.push_back(counter.Task(&Counter::Add).Remote(1));
  results.push_back(sheaf::Task(Say).Remote(1));
  sheaf::Get(results);
  sheaf::Get(sheaf::Put(1));
  sheaf::Get(sheaf::Task(Ramp).Remote(100'000));
}

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  sheaf::Init(argc, argv);
  if (mode == "add") {
    std::printf("%d\n", sheaf::Get(sheaf::Task(Add).Remote(1, 2)));
    return 0;
  }
  if (mode == "work") {
    Work();
    std::printf("done\n");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    return 0;
  }
  if (mode == "threads" && argc == 3) {
    RunThreads(argv[2]);
    return 0;
  }
  if (mode != "hold" || argc != 4) return 2;
  const int count = std::atoi(argv[2]);
  const std::string folder = argv[3];
  std::vector<sheaf::ObjectRef<int>> tasks;
  for (int i = 0; i < count; ++i) tasks.push_back(sheaf::Task(Hold).Remote(folder, i));
  AwaitMarks(folder, count);
  for (const auto& task : tasks) sheaf::Cancel(task, true);
  return 0;
}
