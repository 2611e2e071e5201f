// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/query.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "base/testing/scratch_directory_for_test.h"
#include "base/unix_socket.h"
#include "shm/attach_client.h"

namespace sheaf::cli {
namespace {

namespace fs = std::filesystem;

// A raylet as a tool sees it: answers one question with what `answer` makes of it.
class FakeNode {
 public:
  FakeNode(const fs::path& session, std::function<std::string(const std::string&)> answer)
      : session_(session) {
    fs::create_directories(session);
    chmod(session.c_str(), 0700);
    auto listener = UnixListener::Listen((session / "raylet.sock").string());
    REQUIRE(listener.ok());
    thread_ = std::thread([listener = std::move(*listener), answer = std::move(answer)] {
      while (true) {
        auto socket = listener.Accept(10 * kSecond);
        if (!socket.ok()) return;
        auto hello = socket->Receive(10 * kSecond);
        if (!hello.ok()) continue;  // FindNodes only looks who is there.
        if (hello->bytes == "stop") return;
        AttachWelcome welcome{};
        welcome.magic = kAttachMagic;
        if (!socket->Send(AsBytes(welcome), {}, kSecond).ok()) return;
        auto question = ReceiveInParts(*socket, kMaxToolQuestion, 10 * kSecond);
        if (question.ok()) (void)SendInParts(*socket, answer(*question), 10 * kSecond);
      }
    });
  }
  ~FakeNode() {
    auto socket = UnixSocket::Connect((session_ / "raylet.sock").string(), kSecond);
    if (socket.ok()) (void)socket->Send("stop", {}, kSecond);
    thread_.join();
  }

 private:
  const fs::path session_;
  std::thread thread_;
};

std::string AnswerWith(const std::string& words) {
  proto::StateAnswer answer;
  answer.set_words(words);
  return answer.SerializeAsString();
}

proto::StateQuery Why() {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::WHY);
  query.set_id("abc");
  return query;
}

TEST_CASE("a question reaches the node of the session, its answer comes back") {
  ScratchDirectory directory;
  FakeNode node(directory / "session-1", [](const std::string& question) {
    proto::StateQuery query;
    REQUIRE(query.ParseFromString(question));
    return AnswerWith("asked for " + query.id());
  });
  for (const std::string& address : {directory / "session-1", directory.path()}) {
    INFO(address);
    const auto answer = Ask({.address = address}, Why());
    REQUIRE(answer.ok());
    CHECK(answer->words() == "asked for abc");
  }
}

TEST_CASE("of several nodes the newest is asked, and the dead are passed over") {
  ScratchDirectory directory;
  FakeNode old_node(directory / "session-1", [](const std::string&) { return AnswerWith("old"); });
  FakeNode new_node(directory / "session-2", [](const std::string&) { return AnswerWith("new"); });
  fs::last_write_time(directory / "session-1/raylet.sock",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  {
    // What a node that was killed leaves behind: a socket that nobody listens to.
    fs::create_directories(directory / "session-3");
    std::ofstream(directory / "session-3/raylet.sock");
  }
  const auto nodes = FindNodes(directory.path());
  REQUIRE(nodes.ok());
  REQUIRE(nodes->size() == 2);
  CHECK((*nodes)[0].session == directory / "session-2");
  CHECK((*nodes)[0].os_pid == getpid());
  const auto answer = Ask({.address = directory.path()}, Why());
  REQUIRE(answer.ok());
  CHECK(answer->words() == "new");
}

TEST_CASE("where no node runs the error says where it looked and what to do") {
  ScratchDirectory directory;
  const auto answer = Ask({.address = directory.path()}, Why());
  CHECK(answer.status().code() == absl::StatusCode::kNotFound);
  CHECK(std::string(answer.status().message()) ==
        "no node runs in " + directory.path() + "; start one with: sheaf start --head");
  CHECK(Complain(answer.status()) == kNoNode);
}

TEST_CASE("an answer that cannot be read is an error, and one that does not come a timeout") {
  ScratchDirectory directory;
  {
    FakeNode node(directory / "session-1",
                  [](const std::string&) { return std::string("\xff\xff\xff"); });
    CHECK(Ask({.address = directory.path()}, Why()).status().code() == absl::StatusCode::kInternal);
  }
  auto listener = UnixListener::Listen(directory / "session-1/raylet.sock");
  REQUIRE(listener.ok());  // It takes connections and says nothing.
  const auto late = Ask({.address = directory.path(), .timeout = 50 * kMillisecond}, Why());
  CHECK(late.status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(Complain(late.status()) == kTimedOut);
}

TEST_CASE("each kind of failure has its own exit code") {
  CHECK(Complain(absl::InvalidArgumentError("usage")) == kUsage);
  CHECK(Complain(absl::InternalError("failed")) == kFailed);
  CHECK(Complain(absl::UnavailableError("no node")) == kNoNode);
}

}  // namespace
}  // namespace sheaf::cli
