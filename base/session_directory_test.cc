// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/session_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "base/testing/scratch_directory_for_test.h"
#include "base/unix_socket.h"

namespace sheaf {
namespace {

namespace fs = std::filesystem;

int ModeOf(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? static_cast<int>(info.st_mode & 0777) : -1;
}

// A session whose node is killed at once; its path.
std::string DeadSession(const std::string& base, int start, bool keep) {
  const pid_t child = fork();
  if (child == 0) {
    absl::StatusOr<std::unique_ptr<SessionDirectory>> session =
        SessionDirectory::Make(base, start, keep);
    std::ofstream((*session)->log_directory() + "/raylet.log") << "words";
    std::ofstream((*session)->spill_directory() + "/1") << "object";
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  return base + "/session-19700101-00000" + std::to_string(start) + "-" + std::to_string(child);
}

}  // namespace

SCENARIO(
    "a session that was kept goes on with what was in it, without the old socket, token and "
    "spilled objects") {
  const ScratchDirectory scratch;
  const std::string path = DeadSession(scratch / "b", 1, /*keep=*/true);
  std::ofstream(path + "/gcs.db") << "rows";
  std::string token;
  {
    auto session = SessionDirectory::Resume(path);
    REQUIRE(session.status() == absl::OkStatus());
    CHECK((*session)->path() == fs::canonical(path).string());
    CHECK(fs::exists(path + "/gcs.db"));
    CHECK(fs::exists(path + "/logs/raylet.log"));
    CHECK(fs::is_empty((*session)->spill_directory()));
    CHECK((*session)->token().size() == 64);
    token = (*session)->token();
    CHECK(SessionDirectory::Resume(path).status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(fs::exists(path + "/token"));
    CHECK(SessionDirectory::RemoveDead(scratch / "b", 0) == 0);
  }
  CHECK(fs::exists(path + "/gcs.db"));
  auto again = SessionDirectory::Resume(path);
  REQUIRE(again.ok());
  CHECK((*again)->token() != token);
}

SCENARIO("only what was kept can go on") {
  const ScratchDirectory scratch;
  const std::string base = scratch / "b";
  CHECK(SessionDirectory::Resume(DeadSession(base, 1, /*keep=*/false)).status().code() ==
        absl::StatusCode::kNotFound);
  CHECK(SessionDirectory::Resume(base + "/nothing").status().code() == absl::StatusCode::kNotFound);
}

SCENARIO("a session is private, and leaves nothing unless it is kept") {
  const ScratchDirectory scratch;
  const std::string base = scratch / "a/b";
  const bool keep = GENERATE(false, true);
  std::string path;
  {
    auto session = SessionDirectory::Make(base, 1'700'000'000, keep);
    REQUIRE(session.ok());
    path = (*session)->path();
    CHECK(path == base + "/session-20231114-221320-" + std::to_string(getpid()));
    CHECK_FALSE(fs::exists(base + "/latest"));
    (*session)->PublishLatest();
    CHECK(ModeOf(base) == 0700);
    CHECK(ModeOf(path) == 0700);
    CHECK(ModeOf((*session)->log_directory()) == 0700);
    CHECK(ModeOf(path + "/token") == 0600);
    CHECK((*session)->token().size() == 64);
    CHECK(fs::read_symlink(base + "/latest") == (*session)->name());
    std::ofstream((*session)->log_directory() + "/raylet.log") << "words";
    CHECK(SessionDirectory::RemoveDead(base, 0) == 0);  // It lives.
  }
  CHECK(fs::exists(path + "/logs/raylet.log") == keep);
  CHECK_FALSE(fs::exists(path + "/token"));
  CHECK(fs::exists(base) == keep);
}

SCENARIO("an address names the node that was ready last, a session, or a raylet's socket") {
  const ScratchDirectory scratch;
  for (const char* const newest : {"latest", "auto"}) {
    CHECK(DirectoryOf(newest, "/base") == "/base/latest");
    CHECK(SocketOf(newest, "/base") == "/base/latest/raylet.sock");
  }
  CHECK(DirectoryOf("/elsewhere/session-1", "/base") == "/elsewhere/session-1");
  CHECK(SocketOf("/elsewhere/session-1", "/base") == "/elsewhere/session-1/raylet.sock");
  const std::string socket = scratch / "raylet.sock";
  const absl::StatusOr<UnixListener> listener = UnixListener::Listen(socket);
  REQUIRE(listener.status() == absl::OkStatus());
  CHECK(DirectoryOf(socket, "/base") == scratch.path());
  CHECK(SocketOf(socket, "/base") == socket);
}

SCENARIO("a base directory that others could have prepared is refused") {
  const ScratchDirectory scratch;
  const std::string base = scratch / "b";
  SECTION("open to others") {
    mkdir(base.c_str(), 0755);
    chmod(base.c_str(), 0755);
  }
  SECTION("a link") {
    mkdir((scratch / "target").c_str(), 0700);
    fs::create_symlink(scratch / "target", base);
  }
  CHECK(SessionDirectory::Make(base, 1, false).status().code() ==
        absl::StatusCode::kPermissionDenied);
}

SCENARIO("many nodes start at once, and each removes what dead ones have left") {
  const ScratchDirectory scratch;
  const std::string base = scratch / "b";
  REQUIRE(SessionDirectory::Make(base, 1, false).ok());
  std::atomic<int> failed = 0;
  std::vector<std::thread> nodes;
  for (int node = 0; node < 4; ++node) {
    nodes.emplace_back([&, node] {
      for (int i = 0; i < 100; ++i) {
        SessionDirectory::RemoveDead(base, 0);
        const auto made = SessionDirectory::Make(base, 1000 * node + i, false);
        if (!made.ok() || !fs::exists((*made)->path() + "/logs")) ++failed;
      }
    });
  }
  for (std::thread& node : nodes) node.join();
  CHECK(failed == 0);
  CHECK_FALSE(fs::exists(base));  // Empty, it went with the last one.
}

SCENARIO("what killed nodes left is removed by the next one") {
  const ScratchDirectory scratch;
  const std::string base = scratch / "b";
  const std::string embedded = DeadSession(base, 1, false);
  const std::string old = DeadSession(base, 2, true);
  const std::string recent = DeadSession(base, 3, true);
  REQUIRE(fs::exists(embedded));
  auto living = SessionDirectory::Make(base, 4, false);
  REQUIRE(living.ok());
  CHECK(SessionDirectory::RemoveDead(base, 1) == 2);
  CHECK_FALSE(fs::exists(embedded));
  CHECK_FALSE(fs::exists(old));
  CHECK(fs::exists(recent + "/logs/raylet.log"));
  CHECK_FALSE(fs::exists(recent + "/spill"));
  CHECK(fs::exists((*living)->path() + "/lock"));
}

SCENARIO(
    "the database of a head stays, however many nodes began since, until it is removed by name") {
  const ScratchDirectory scratch;
  const std::string base = scratch / "b";
  const std::string head = DeadSession(base, 1, true);
  std::ofstream(head + "/gcs.db") << "rows";
  for (int start = 2; start < 9; ++start) DeadSession(base, start, true);
  SessionDirectory::RemoveDead(base, 2);
  CHECK(fs::exists(head + "/gcs.db"));
  CHECK(SessionDirectory::List(base).size() == 3);
  CHECK(SessionDirectory::Remove(base + "/nothing").code() == absl::StatusCode::kNotFound);
  CHECK(SessionDirectory::Remove(base).code() == absl::StatusCode::kNotFound);
  {
    const auto running = SessionDirectory::Resume(head);
    CHECK(SessionDirectory::Remove(head).code() == absl::StatusCode::kFailedPrecondition);
  }
  CHECK(SessionDirectory::Remove(head) == absl::OkStatus());
  CHECK_FALSE(fs::exists(head));
}

SCENARIO("the latest head is the one that was started last, not the one that was made last") {
  const ScratchDirectory scratch;
  const std::string base = scratch / "b";
  CHECK(*SessionDirectory::FindLatest(base, true) == "");
  const std::string old = DeadSession(base, 1, true);
  const std::string young = DeadSession(base, 2, true);
  const std::string worker = DeadSession(base, 3, true);
  for (const std::string& head : {old, young}) std::ofstream(head + "/gcs.db") << "rows";
  const auto start = [](const std::string& session, int seconds_ago) {
    std::ofstream(session + "/node") << "1";
    fs::last_write_time(session + "/node",
                        fs::file_time_type::clock::now() - std::chrono::seconds(seconds_ago));
  };
  start(old, 10);
  start(young, 20);
  start(worker, 5);
  CHECK(*SessionDirectory::FindLatest(base, true) == old);
  CHECK(*SessionDirectory::FindLatest(base, false) == worker);
  const auto running = SessionDirectory::Resume(old);
  REQUIRE(running.ok());
  CHECK(SessionDirectory::FindLatest(base, true).status().code() ==
        absl::StatusCode::kFailedPrecondition);
}

SCENARIO("a lock that somebody has for a moment is no node that runs") {
  const ScratchDirectory scratch;
  const std::string base = scratch / "b";
  const std::string head = DeadSession(base, 1, true);
  std::ofstream(head + "/gcs.db") << "rows";
  // As the last thread of a node that was killed, or who looks at sessions as well.
  int lock = open((head + "/lock").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(flock(lock, LOCK_EX | LOCK_NB) == 0);
  std::thread lets_go([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    close(lock);
  });
  const auto latest = SessionDirectory::FindLatest(base, true);
  lets_go.join();
  REQUIRE(latest.ok());
  CHECK(*latest == head);
}

SCENARIO("a node notices that its directory went") {
  const ScratchDirectory scratch;
  const std::string base = scratch / "b";
  auto session = SessionDirectory::Make(base, 1, true);
  REQUIRE(session.ok());
  CHECK((*session)->CheckThere() == absl::OkStatus());
  SECTION("removed") { fs::remove_all((*session)->path()); }
  SECTION("replaced") {
    fs::rename((*session)->path(), base + "/elsewhere");
    fs::create_directory((*session)->path());
    std::ofstream((*session)->path() + "/lock") << "";
  }
  CHECK((*session)->CheckThere().code() == absl::StatusCode::kDataLoss);
}

SCENARIO(
    "two nodes that begin in one second with one process number have directories of their own") {
  const ScratchDirectory scratch;
  const std::string base = scratch / "b";
  const auto one = SessionDirectory::Make(base, 1, false);
  const auto two = SessionDirectory::Make(base, 1, false);
  REQUIRE(two.status() == absl::OkStatus());
  CHECK((*one)->path() + "-2" == (*two)->path());
}

}  // namespace sheaf
