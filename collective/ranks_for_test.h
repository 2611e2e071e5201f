// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Ranks as processes, for tests in which one is killed, stopped or late.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/fake_rendezvous.h"
#include "collective/implementations_for_test.h"

namespace sheaf::testing {

inline constexpr Nanos kSoon = 20 * kSecond;  // What should come at once comes within this.

// What a rank tells the test: lines of text through a pipe.
class Ranks {
 public:
  using Body = std::function<void(int rank, Rendezvous& rendezvous)>;

  ~Ranks() {
    for (pid_t pid : pids_) {
      kill(pid, SIGKILL);
      kill(pid, SIGCONT);
      waitpid(pid, nullptr, 0);
    }
    for (int fd : outputs_) close(fd);
  }
  // `body` runs in a child, which says things with Say and then ends.
  void Start(int rank, const Body& body) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      said_ = ends[1];
      FakeRendezvous rendezvous(place_);
      body(rank, rendezvous);
      _exit(0);
    }
    close(ends[1]);
    pids_.push_back(pid);
    outputs_.push_back(ends[0]);
  }
  static void Say(const std::string& line) {
    const std::string text = line + "\n";
    if (write(said_, text.data(), text.size()) < 0) _exit(2);
  }
  // The next line of rank `index`, in the order of Start; empty: it ended, or took too long.
  std::string Line(size_t index) {
    std::string line;
    const Nanos deadline = MonotonicNow() + kSoon;
    while (MonotonicNow() < deadline) {
      pollfd entry{outputs_[index], POLLIN, 0};
      if (poll(&entry, 1, 100) <= 0) continue;
      char letter;
      if (read(outputs_[index], &letter, 1) != 1) return line;
      if (letter == '\n') return line;
      line += letter;
    }
    return line + " (nothing more came)";
  }
  pid_t pid(size_t index) const { return pids_[index]; }

 private:
  FakeMeetingPlace place_;
  std::vector<pid_t> pids_;
  std::vector<int> outputs_;
  static inline int said_ = -1;
};

inline CommunicatorOptions OptionsOf(int rank, int world) {
  CommunicatorOptions options;
  options.rank = rank;
  options.world_size = world;
  options.arena_bytes = 64 << 20;
  return options;
}

inline std::unique_ptr<Communicator> Form(Implementation implementation, int rank, int world,
                                          Rendezvous& rendezvous) {
  auto group = FormFor(implementation, OptionsOf(rank, world), rendezvous);
  if (!group.ok()) {
    Ranks::Say("not formed: " + group.status().ToString());
    _exit(1);
  }
  return *std::move(group);
}

// "CODE rank: words".
inline std::string Words(const absl::Status& status) {
  return absl::StatusCodeToString(status.code()) + " " +
         std::to_string(RankOf(status).value_or(-1)) + ": " + std::string(status.message());
}
inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
inline void PauseForever() {
  while (true) pause();
}

}  // namespace sheaf::testing
