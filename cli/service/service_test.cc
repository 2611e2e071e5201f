// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fake_clock.h"
#include "base/testing/scratch_directory_for_test.h"
#include "cli/service/health.h"
#include "cli/service/pulse.h"
#include "cli/service/service_notifier.h"

namespace sheaf::cli {
namespace {

// The socket of a service manager.
class Manager {
 public:
  explicit Manager(const std::string& path)
      : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    if (path[0] == '@') address.sun_path[0] = '\0';
    REQUIRE(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size())) == 0);
  }
  std::vector<std::string> Heard() {
    std::vector<std::string> all;
    char text[256];
    ssize_t n = 0;
    while ((n = recv(socket_.get(), text, sizeof(text), 0)) > 0) all.emplace_back(text, n);
    return all;
  }

 private:
  const UniqueFd socket_;
};

using Words = std::vector<std::string>;

// Keeps what a handler answers.
struct Answer final : http::Reply::Exchange {
  void Send(http::Response response) override { sent = std::move(response); }
  std::shared_ptr<http::Stream> Open(http::Response) override { return nullptr; }
  http::Response sent;
};

http::Response Ask(const http::Router& router, const std::string& name) {
  const auto answer = std::make_shared<Answer>();
  const http::Route* const route = router.Find("GET", {"api", name}).route;
  REQUIRE(route != nullptr);
  CHECK(route->right == http::Right::kOpen);
  route->handler({}, http::Reply(answer));
  return answer->sent;
}

}  // namespace

TEST_CASE("a node is well while its loop turns, and a head while its GCS speaks, too") {
  FakeClock clock;
  Pulse pulse(clock);
  CHECK(pulse.Raylet().message() == "the node starts");
  CHECK(pulse.Gcs().message() == "the GCS has not answered yet");
  pulse.LoopTurned();
  pulse.GcsSpoke();
  CHECK(pulse.Raylet().ok());
  CHECK(pulse.Gcs().ok());
  clock.Advance(kLongestSilence);
  CHECK(pulse.Raylet().ok());
  CHECK(pulse.Gcs().message() == "the GCS was not heard for 5 s");
  CHECK(pulse.GcsSilence() == kLongestSilence);
  SECTION("a node that has lost the head of its cluster is well") {
    clock.Advance(kLongestReturn);
    pulse.LoopTurned();
    CHECK(pulse.Node().ok());
  }
  SECTION("a head gives its own GCS the time to come back") {
    pulse.HostsGcs();
    CHECK(pulse.Node().ok());
    clock.Advance(kLongestReturn - kLongestSilence);
    pulse.LoopTurned();
    CHECK(pulse.Node().message() == "the GCS was not heard for 30 s");
    pulse.GcsSpoke();
    CHECK(pulse.Node().ok());
  }
  SECTION("a loop that stands still is not") {
    pulse.LoopTurned();
    clock.Advance(kLongestTurn);
    CHECK(pulse.Raylet().message() == "the node's loop has not turned for 10 s");
    CHECK_FALSE(pulse.Node().ok());
  }
}

TEST_CASE("whoever asks over HTTP hears whether a node is well, or what does not work") {
  FakeClock clock;
  Pulse pulse(clock);
  pulse.HostsGcs();
  const http::Router router = HealthRoutes(pulse);
  CHECK(Ask(router, "healthz").status == 503);
  CHECK(Ask(router, "local_raylet_healthz").body == "the node starts\n");
  pulse.LoopTurned();
  CHECK(Ask(router, "local_raylet_healthz").body == "success");
  CHECK(Ask(router, "gcs_healthz").status == 503);
  pulse.GcsSpoke();
  for (const char* name : {"healthz", "local_raylet_healthz", "gcs_healthz"}) {
    CHECK(Ask(router, name).status == 200);
  }
}

TEST_CASE("a service manager hears that a node is ready, lives and ends") {
  const ScratchDirectory directory;
  const std::string path =
      GENERATE(false, true) ? "@sheaf-test-" + std::to_string(getpid()) : directory / "notify";
  Manager manager(path);
  ServiceNotifier notifier({.socket = path, .watchdog_period = 30 * kSecond});
  notifier.Ready("node 3 of 10.0.0.1:6379");
  CHECK(manager.Heard() == Words{"READY=1\nSTATUS=node 3 of 10.0.0.1:6379"});
  Nanos now = 100 * kSecond;
  notifier.Look(absl::OkStatus(), now);
  CHECK(manager.Heard() == Words{"WATCHDOG=1"});
  notifier.Look(absl::OkStatus(), now + 9 * kSecond);
  CHECK(manager.Heard().empty());
  notifier.Look(absl::OkStatus(), now + 10 * kSecond);
  CHECK(manager.Heard() == Words{"WATCHDOG=1"});

  // It starves while the node is not well.
  now += 60 * kSecond;
  notifier.Look(absl::UnavailableError("the loop stands"), now);
  notifier.Look(absl::UnavailableError("the loop stands"), now + kSecond);
  CHECK(manager.Heard() == Words{"STATUS=the loop stands"});
  notifier.Look(absl::OkStatus(), now + 2 * kSecond);
  CHECK(manager.Heard() == Words{"STATUS=node 3 of 10.0.0.1:6379", "WATCHDOG=1"});
  notifier.Stopping();
  CHECK(manager.Heard() == Words{"STOPPING=1"});
}

TEST_CASE("without a watchdog none is fed, and without a manager nothing is sent") {
  const ScratchDirectory directory;
  Manager manager(directory / "notify");
  ServiceNotifier unwatched({.socket = directory / "notify"});
  unwatched.Look(absl::OkStatus(), kSecond);
  CHECK(manager.Heard().empty());
  ServiceNotifier alone({});
  alone.Ready("x");
  alone.Look(absl::OkStatus(), kSecond);
  // A socket that is gone, or whose name is too long, ends nothing.
  ServiceNotifier lost({.socket = directory / "none", .watchdog_period = kSecond});
  lost.Ready("x");
  ServiceNotifier long_name({.socket = "/" + std::string(200, 'x')});
  long_name.Stopping();
}

TEST_CASE("a port for probes beyond this machine needs an address and a port that is free") {
  FakeClock clock;
  const Pulse pulse(clock);
  const auto first = ServeHealth("0.0.0.0", 0, pulse);
  REQUIRE(first.ok());
  const absl::Status taken = ServeHealth("0.0.0.0", (*first)->port(), pulse).status();
  CHECK(taken.code() == absl::StatusCode::kUnavailable);
  CHECK(std::string(taken.message()).find("--health-port") != std::string::npos);
  CHECK(ServeHealth("node.example", 1, pulse).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

}  // namespace sheaf::cli
