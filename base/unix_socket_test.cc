// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/unix_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/testing/scratch_directory_for_test.h"

namespace sheaf {
namespace {

// Descriptors that this process has open.
size_t OpenFds() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

}  // namespace

SCENARIO("a message with descriptors arrives whole, and its descriptors work") {
  ScratchDirectory directory;
  absl::StatusOr<UnixListener> listener = UnixListener::Listen(directory / "s");
  REQUIRE(listener.ok());
  absl::StatusOr<UnixSocket> client = UnixSocket::Connect(directory / "s", kSecond);
  REQUIRE(client.ok());
  absl::StatusOr<UnixSocket> server = listener->Accept(kSecond);
  REQUIRE(server.ok());
  CHECK(server->Peer()->uid == geteuid());
  CHECK(server->Peer()->pid == getpid());

  int pipe_fds[2];
  REQUIRE(pipe2(pipe_fds, O_CLOEXEC) == 0);
  UniqueFd reading(pipe_fds[0]);
  UniqueFd writing(pipe_fds[1]);
  REQUIRE(client->Send("take this", {writing.get()}, kSecond).ok());
  absl::StatusOr<SocketMessage> message = server->Receive(kSecond);
  REQUIRE(message.ok());
  CHECK(message->bytes == "take this");
  REQUIRE(message->fds.size() == 1);
  CHECK((fcntl(message->fds[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
  REQUIRE(write(message->fds[0].get(), "x", 1) == 1);
  char byte = 0;
  CHECK(read(reading.get(), &byte, 1) == 1);
  CHECK(byte == 'x');
}

SCENARIO("every wait on a socket ends") {
  auto pair = UnixSocket::Pair();
  REQUIRE(pair.ok());
  auto& [left, right] = *pair;
  THEN("receiving from a silent peer is an error after the timeout") {
    CHECK(left.Receive(kMillisecond).status().code() == absl::StatusCode::kDeadlineExceeded);
  }
  THEN("a peer that does not read fills up, then sending is an error") {
    const std::string big(32 * 1024, 'a');
    absl::Status status;
    for (int i = 0; i < 1000 && status.ok(); ++i) status = left.Send(big, {}, 0);
    CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
    CHECK(right.Receive(0)->bytes == big);
  }
  THEN("a closed peer is known at once, both ways") {
    right.Close();
    CHECK(left.Receive(kSecond).status().code() == absl::StatusCode::kUnavailable);
    CHECK(left.Send("x", {}, kSecond).code() == absl::StatusCode::kUnavailable);
  }
  THEN("nobody connecting is an error after the timeout") {
    ScratchDirectory directory;
    absl::StatusOr<UnixListener> listener = UnixListener::Listen(directory / "s");
    CHECK(listener->Accept(kMillisecond).status().code() == absl::StatusCode::kDeadlineExceeded);
  }
}

SCENARIO("what is over the limits is refused, and leaks nothing") {
  auto pair = UnixSocket::Pair();
  REQUIRE(pair.ok());
  auto& [left, right] = *pair;
  CHECK(left.Send("", {}, 0).code() == absl::StatusCode::kInvalidArgument);
  CHECK(left.Send(std::string(kMaxMessageBytes + 1, 'a'), {}, 0).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(left.Send("x", std::vector<int>(kMaxMessageFds + 1, 0), 0).code() ==
        absl::StatusCode::kInvalidArgument);
  const size_t before = OpenFds();
  WHEN("a hostile peer sends more descriptors than allowed") {
    char byte = 'x';
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(40 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(40 * sizeof(int));  // Forty times descriptor 0.
    REQUIRE(sendmsg(left.fd(), &message, 0) == 1);
    THEN("the message is an error and all of them are closed") {
      CHECK(right.Receive(kSecond).status().code() == absl::StatusCode::kInvalidArgument);
      CHECK(OpenFds() == before);
    }
  }
  WHEN("a hostile peer sends more bytes than allowed") {
    const std::string big(kMaxMessageBytes + 1, 'a');
    REQUIRE(send(left.fd(), big.data(), big.size(), 0) == static_cast<ssize_t>(big.size()));
    THEN("the message is an error and the next one arrives") {
      CHECK(right.Receive(kSecond).status().code() == absl::StatusCode::kInvalidArgument);
      REQUIRE(left.Send("next", {}, 0).ok());
      CHECK(right.Receive(kSecond)->bytes == "next");
    }
  }
}

SCENARIO("a socket lives in a private directory, at any depth") {
  ScratchDirectory directory;
  WHEN("the directory is open to others") {
    chmod(directory.path().c_str(), 0755);
    THEN("nobody listens there") {
      CHECK(UnixListener::Listen(directory / "s").status().code() ==
            absl::StatusCode::kPermissionDenied);
    }
  }
  WHEN("the path has more than 107 bytes") {
    const std::string deep = directory / std::string(120, 'd');
    REQUIRE(mkdir(deep.c_str(), 0700) == 0);
    absl::StatusOr<UnixListener> listener = UnixListener::Listen(deep + "/s");
    REQUIRE(listener.ok());
    THEN("it works all the same") {
      CHECK(UnixSocket::Connect(deep + "/s", kSecond).ok());
      CHECK(UnixListener::Listen(deep + "/s").status().code() == absl::StatusCode::kAlreadyExists);
    }
  }
  WHEN("a dead process left its socket file") {
    const std::string path = directory / "s";
    const pid_t child = fork();
    if (child == 0) {
      absl::StatusOr<UnixListener> listener = UnixListener::Listen(path);
      _exit(listener.ok() ? 0 : 1);  // No destructor runs: the file stays.
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    CHECK(UnixSocket::Connect(path, kSecond).status().code() == absl::StatusCode::kUnavailable);
    THEN("the next one takes its place, and removes it in the end") {
      {
        absl::StatusOr<UnixListener> listener = UnixListener::Listen(path);
        REQUIRE(listener.ok());
        struct stat info;
        REQUIRE(stat(path.c_str(), &info) == 0);
        CHECK((info.st_mode & 0777) == 0600);
      }
      CHECK_FALSE(std::filesystem::exists(path));
      CHECK(UnixSocket::Connect(path, kSecond).status().code() == absl::StatusCode::kNotFound);
    }
  }
}

}  // namespace sheaf
