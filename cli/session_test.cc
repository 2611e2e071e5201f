// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/session.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/unix_socket.h"

namespace sheaf::cli {
namespace {

namespace fs = std::filesystem;

struct Directory {
  fs::path path;
  Directory() {
    char name[] = "/tmp/sheaf-session-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path = name;
  }
  ~Directory() { fs::remove_all(path); }
};

int ModeOf(const fs::path& path) {
  struct stat about{};
  REQUIRE(stat(path.c_str(), &about) == 0);
  return about.st_mode & 0777;
}

TEST_CASE("a session is a directory of this user alone, with all that a node puts there") {
  Directory directory;
  const std::string base = directory.path / "deep" / "sheaf";
  const auto session = CreateSession(base, 24);
  REQUIRE(session.ok());
  for (const std::string& made : {base, session->directory, session->logs, session->spill}) {
    INFO(made);
    CHECK(ModeOf(made) == 0700);
  }
  CHECK(fs::path(session->directory).parent_path() == base);
  CHECK(session->directory.ends_with("-" + std::to_string(getpid())));
  CHECK(ModeOf(session->directory + "/token") == 0600);
  std::string token;
  std::ifstream(session->directory + "/token") >> token;
  CHECK(token == session->token);
  CHECK(token.size() == 64);
}

TEST_CASE("tokens differ") {
  Directory a;
  Directory b;
  CHECK(CreateSession(a.path, 24)->token != CreateSession(b.path, 24)->token);
}

TEST_CASE("a base directory that others can enter is refused") {
  Directory directory;
  fs::create_directory(directory.path / "open");
  chmod((directory.path / "open").c_str(), 0755);
  CHECK(CreateSession(directory.path / "open", 24).status().code() ==
        absl::StatusCode::kPermissionDenied);
  fs::create_directory_symlink(directory.path, directory.path / "link");
  CHECK(CreateSession(directory.path / "link", 24).status().code() ==
        absl::StatusCode::kPermissionDenied);
}

TEST_CASE("latest points to the session that was published last") {
  Directory directory;
  fs::create_directory(directory.path / "session-1");
  const auto session = CreateSession(directory.path, 24);
  REQUIRE(session.ok());
  Session earlier;
  earlier.directory = directory.path / "session-1";
  REQUIRE(PublishLatest(earlier).ok());
  REQUIRE(PublishLatest(*session).ok());
  CHECK(fs::canonical(directory.path / "latest") == fs::canonical(session->directory));
}

TEST_CASE("old sessions go when their node is dead") {
  Directory directory;
  const auto hours_ago = [](int hours) {
    return fs::file_time_type::clock::now() - std::chrono::hours(hours);
  };
  for (const char* name : {"session-old", "session-young", "session-alive", "other"}) {
    fs::create_directories(directory.path / name / "logs");
    chmod((directory.path / name).c_str(), 0700);
  }
  const auto listener = UnixListener::Listen(directory.path / "session-alive/raylet.sock");
  REQUIRE(listener.ok());
  for (const char* name : {"session-old", "session-alive", "other"})
    fs::last_write_time(directory.path / name, hours_ago(25));
  fs::last_write_time(directory.path / "session-young", hours_ago(23));
  REQUIRE(CreateSession(directory.path, 24).ok());
  CHECK(!fs::exists(directory.path / "session-old"));
  CHECK(fs::exists(directory.path / "session-young"));
  CHECK(fs::exists(directory.path / "session-alive"));
  CHECK(fs::exists(directory.path / "other"));
}

}  // namespace
}  // namespace sheaf::cli
