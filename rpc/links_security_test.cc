// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who is let in over real sockets, and that those who are not disturb nobody.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "absl/strings/match.h"
#include "base/testing/wait_until_for_test.h"
#include "rpc/links_node_for_test.h"
#include "rpc/proxy_for_test.h"
#include "rpc/security/tls_directory_for_test.h"

namespace sheaf {
namespace links_security_test {

constexpr ProcessId kOne{1, 0}, kTwo{2, 0}, kThree{3, 0};

TEST_CASE("a wrong token is refused, and both ends stay as they are") {
  TestNode two({kTwo});
  LinksOptions options = TestLinksOptions();
  options.credentials.token = GENERATE(std::string(32, 'w'), std::string());
  TestNode stranger({kOne}, options);
  stranger.links().SetAddress(kTwo, two.address());
  stranger.Send(kTwo, "let me in");
  REQUIRE(stranger.AwaitReason(absl::StatusCode::kUnauthenticated));
  CHECK(two.links().figures().refused_handshakes > 0);
  CHECK(two.frames() == 0);
  CHECK(two.events().empty());
  CHECK(stranger.Fetch(kTwo, "x", 200 * kMillisecond).status().code() ==
        absl::StatusCode::kDeadlineExceeded);
}

TEST_CASE("another version is told to both, with both names") {
  TestNode two({kTwo});
  LinksOptions options = TestLinksOptions();
  options.version = "2.7";
  TestNode other({kOne}, options);
  other.links().SetAddress(kTwo, two.address());
  other.Send(kTwo, "hello");
  for (TestNode* node : {&two, &other}) {
    REQUIRE(node->AwaitReason(absl::StatusCode::kFailedPrecondition));
    const std::string text(node->events().back().reason.message());
    CHECK(text.find("2.7") != std::string::npos);
    CHECK(text.find("1.0") != std::string::npos);
  }
  CHECK(two.frames() == 0);
}

TEST_CASE("a GCS whose term is over is not followed, and hears of it, whoever dials") {
  const std::string cluster = "the cluster's id";
  TestNode now({kThree});
  now.links().SetTerm(GcsTerm::Of(cluster, 5));
  now.links().AddSelf(kGcs);
  TestNode one({kOne});
  one.links().SetAddress(kGcs, now.address());
  one.Send(kGcs, "hello");
  REQUIRE(now.AwaitFrames(1));

  TestNode old({kTwo});
  old.links().SetTerm(GcsTerm::Of(cluster, 4));
  old.links().AddSelf(kGcs);
  SECTION("a raylet that knew the later one dials it") {
    TestNode late({kOne});
    late.links().SetTerm(GcsTerm::Of(cluster, 5));
    late.links().SetAddress(kGcs, old.address());
    late.Send(kGcs, "for the later one");
    REQUIRE(late.AwaitReason(absl::StatusCode::kUnavailable));
  }
  SECTION("it dials a raylet that knows the later one") {
    old.links().SetAddress(kOne, one.address());
    old.links().Send(kGcs, kOne, {kGcs, kOne, Lane::kControl, FrameKind::kGcsEvent, "an order"});
    old.links().Flush();
    REQUIRE(old.AwaitReason(absl::StatusCode::kAborted));
    for (const TestNode::Event& event : one.events()) {
      CHECK((event.up || event.peer != kGcs));  // Its link to the later one stands.
    }
  }
  SECTION("it dials the later one's raylet") {
    old.links().SetAddress(kThree, now.address());
    old.Send(kThree, "hello");
  }
  SECTION("the later one dials its raylet") {
    now.links().SetAddress(kTwo, old.address());
    now.Send(kTwo, "hello");
  }
  REQUIRE(old.AwaitReason(absl::StatusCode::kAborted));
  CHECK(old.frames() == 0);
  CHECK(one.frames() == 0);
  CHECK(now.frames() == 1);
  for (const TestNode::Event& event : now.events()) {
    CHECK(event.reason.code() != absl::StatusCode::kAborted);
  }
}

TEST_CASE("another cluster's terms say nothing") {
  TestNode gcs({kTwo});
  gcs.links().SetTerm(GcsTerm::Of("one cluster", 1));
  gcs.links().AddSelf(kGcs);
  TestNode other({kOne});
  other.links().SetTerm(GcsTerm::Of("another one", 7));
  other.links().SetAddress(kGcs, gcs.address());
  other.Send(kGcs, "hello");
  REQUIRE(gcs.AwaitFrames(1));
}

TEST_CASE("an address that is somebody else's by now is not the peer") {
  TestNode three({kThree});
  TestNode one({kOne});
  one.links().SetAddress(kTwo, three.address());
  one.Send(kTwo, "for two");
  REQUIRE(one.AwaitReason(absl::StatusCode::kUnavailable));
  CHECK(three.frames() == 0);
}

TEST_CASE("an open address needs credentials, a taken port and nonsense are told") {
  LinksOptions options;
  options.version = "1.0";
  options.listen_address = "0.0.0.0:0";
  CHECK(Links::Start(options).status().code() == absl::StatusCode::kFailedPrecondition);
  options.credentials.token = kTestToken;
  CHECK(Links::Start(options).status().ToString() == "OK");
  options.listen_address = "not an address";
  CHECK(Links::Start(options).status().code() == absl::StatusCode::kInvalidArgument);
  TestNode one({kOne});
  options.listen_address = one.address();
  CHECK(Links::Start(options).status().code() == absl::StatusCode::kAlreadyExists);
  options.listen_address = "127.0.0.1:0";
  options.advertise_address = "node1:0";
  auto advertised = Links::Start(options);
  REQUIRE(advertised.ok());
  CHECK((*advertised)->address().starts_with("node1:"));
  CHECK((*advertised)->address() != "node1:0");
}

TEST_CASE("certificates of one authority, with or without a token, let in; others do not") {
  const TlsDirectory directory;
  directory.Make("ours");
  directory.Make("theirs");
  LinksOptions ours = TestLinksOptions(), other = TestLinksOptions();
  ours.silence_limit = other.silence_limit = 5 * kSecond;
  ours.credentials = directory.Load("ours");
  if (GENERATE(true, false)) ours.credentials.token = kTestToken;
  TestNode two({kTwo}, ours);
  SECTION("the same authority") {
    TestNode one({kOne}, ours);
    one.links().SetAddress(kTwo, two.address());
    one.Send(kTwo, "under cover");
    REQUIRE(two.AwaitFrames(1));
    auto block = one.Fetch(kTwo, "x");
    REQUIRE(block.status().ToString() == "OK");
    CHECK((*block)->size() == 2);
  }
  SECTION("another authority") {
    other.credentials = directory.Load("theirs");
    other.credentials.token = ours.credentials.token;
    TestNode one({kOne}, other);
    one.links().SetAddress(kTwo, two.address());
    one.Send(kTwo, "let me in");
    CHECK(one.AwaitReason(absl::StatusCode::kUnauthenticated));
    CHECK(two.frames() == 0);
  }
  SECTION("none") {
    other.credentials.token = ours.credentials.token;
    TestNode one({kOne}, other);
    one.links().SetAddress(kTwo, two.address());
    one.Send(kTwo, "let me in");
    CHECK(one.Await([&] { return false; }, 300 * kMillisecond) == false);
    CHECK(two.frames() == 0);
    CHECK_FALSE(one.events().empty());
  }
}

TEST_CASE("a link that is down for another reason says so, whatever it said before") {
  const TlsDirectory directory;
  directory.Make("theirs");
  LinksOptions theirs = TestLinksOptions();
  theirs.listen_address = TestNode({kTwo}).address();  // Nobody is there any more.
  theirs.credentials = directory.Load("theirs");
  TestNode one({kOne});
  one.links().SetAddress(kTwo, theirs.listen_address);
  one.Send(kTwo, "is anybody there");
  REQUIRE(one.AwaitReason(absl::StatusCode::kUnavailable));
  TestNode two({kTwo}, theirs);
  CHECK(WaitUntil(kTestPatience, [&] {
    const absl::Status reason = one.events().back().reason;
    return absl::IsUnavailable(reason) && absl::StrContains(reason.message(), "--tls-dir");
  }));
}

TEST_CASE("half-open connections, garbage and wrong handshakes leave a good link alone") {
  LinksOptions options = TestLinksOptions();
  options.silence_limit = 5 * kSecond;
  TestNode two({kTwo}, options);
  TestNode one({kOne}, options);
  two.CheckNumbers();
  one.links().SetAddress(kTwo, two.address());
  one.SendNumbers(kTwo, 0, 100, 10);
  REQUIRE(two.AwaitFrames(100));

  const uint16_t port = PortOf(two.address());
  std::vector<UniqueFd> open;
  for (int i = 0; i < 200; ++i) {
    UniqueFd fd = ConnectTo(port);
    REQUIRE(fd.valid());
    std::string bytes;
    if (i % 4 == 1) bytes = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    if (i % 4 == 2) bytes = std::string(4096, static_cast<char>(i));
    if (i % 4 == 3) bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string(100, '\xff');
    if (!bytes.empty()) send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    open.push_back(std::move(fd));
  }
  LinksOptions wrong = options;
  wrong.credentials.token = std::string(32, 'w');
  std::vector<std::unique_ptr<TestNode>> strangers;
  for (NodeNumber i = 0; i < 5; ++i) {
    strangers.push_back(std::make_unique<TestNode>(std::vector{RayletOf(10 + i)}, wrong));
    strangers.back()->links().SetAddress(kTwo, two.address());
    strangers.back()->Send(kTwo, "let me in");
  }
  one.SendNumbers(kTwo, 100, 20'000, 10);
  REQUIRE(two.AwaitFrames(20'100));
  TestNode late({kThree}, options);
  late.links().SetAddress(kTwo, two.address());
  late.Send(kTwo, "12345678");
  CHECK(late.AwaitLink(kTwo, true));
  for (auto& stranger : strangers) {
    CHECK(stranger->AwaitReason(absl::StatusCode::kUnauthenticated));
  }
  CHECK(one.events().size() == 1);  // It came up, and that was all.
  CHECK(one.links().figures().reconnects == 0);
}

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

// A process of its own that opens `count` connections from 127.0.0.2, says no more over each than
// that it speaks HTTP/2, and holds them until it is killed. Its descriptors are not ours.
class IdleFlood {
 public:
  IdleFlood(uint16_t port, int count) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    child_ = fork();
    if (child_ == 0) {
      const rlimit many{8192, 8192};
      setrlimit(RLIMIT_NOFILE, &many);
      const sockaddr_in target = LoopbackAddress(port);
      sockaddr_in here = LoopbackAddress(0);
      here.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
      constexpr char kHello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
      for (int i = 0; i < count; ++i) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        bind(fd, reinterpret_cast<const sockaddr*>(&here), sizeof here);
        connect(fd, reinterpret_cast<const sockaddr*>(&target), sizeof target);
        send(fd, kHello, sizeof kHello, MSG_NOSIGNAL);
      }
      [[maybe_unused]] const ssize_t told = write(ready[1], "x", 1);
      while (true) pause();
    }
    close(ready[1]);
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
  }
  ~IdleFlood() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_;
};

TEST_CASE("hundreds of idle connections leave descriptors, and the port open for the cluster") {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  LinksOptions options = TestLinksOptions();
  options.idle_limit = kSecond;
  TestNode two({kTwo}, options);
  TestNode one({kOne});
  const rlimit few{512, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  const size_t open = OpenDescriptors();
  {
    const IdleFlood flood(PortOf(two.address()), 600);
    CHECK(
        WaitUntil(kTestPatience, [&] { return two.links().figures().refused_connections > 400; }));
    CHECK(OpenDescriptors() < open + 100);
    one.links().SetAddress(kTwo, two.address());
    one.Send(kTwo, "let me in");
    CHECK(two.AwaitFrames(1));
    // Those that were let in and say nothing are closed.
    CHECK(WaitUntil(kTestPatience, [&] { return OpenDescriptors() <= open + 10; }));
    CHECK(one.Fetch(kTwo, "x").ok());
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("a port tells nothing to those who do not speak its language") {
  TestNode two({kTwo});
  const UniqueFd fd = ConnectTo(PortOf(two.address()));
  REQUIRE(fd.valid());
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  REQUIRE(send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) > 0);
  std::string answer;
  char bytes[4096];
  for (ssize_t got; (got = recv(fd.get(), bytes, sizeof bytes, 0)) > 0;) answer.append(bytes, got);
  CHECK(answer.find("1.0") == std::string::npos);  // The version.
  CHECK(answer.size() < 200);                      // HTTP/2 settings and a goodbye.
}

}  // namespace links_security_test
}  // namespace sheaf
