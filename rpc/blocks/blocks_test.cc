// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Blocks over real sockets: whole or not at all, to nobody else, and from nobody else.
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "absl/strings/match.h"
#include "base/crc32c.h"
#include "base/testing/wait_until_for_test.h"
#include "rpc/blocks/block_fetcher.h"
#include "rpc/blocks/block_service.h"
#include "rpc/blocks/block_wire.h"
#include "rpc/links_node_for_test.h"
#include "rpc/proxy_for_test.h"
#include "rpc/security/tls_directory_for_test.h"

namespace sheaf {
namespace blocks_test {

constexpr ProcessId kOne{1, 0}, kTwo{2, 0};

std::string BytesOfBlock(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 + i / 251);
  return bytes;
}

// Gives BytesOfBlock of the size that is asked for.
LinksOptions Giving(LinksOptions options = TestLinksOptions()) {
  options.silence_limit = 5 * kSecond;
  options.on_fetch = [](ProcessId, std::string request, LinksOptions::Respond respond) {
    auto bytes = std::make_shared<std::string>(BytesOfBlock(std::stoul(request)));
    respond(Block{"head " + request, {bytes->data(), bytes->size()}, bytes});
  };
  return options;
}

void Meet(TestNode& one, TestNode& two, const std::string& address) {
  one.links().SetAddress(kTwo, address);
  const uint64_t before = two.frames();
  one.Send(kTwo, "hello");
  REQUIRE(two.AwaitFrames(before + 1));
}

// A socket that says and hears what the test wants, on any thread.
struct Raw {
  explicit Raw(const std::string& address) : fd(ConnectTo(PortOf(address))) {
    const timeval patience{kTestPatience / kSecond, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  explicit Raw(UniqueFd accepted) : fd(std::move(accepted)) {}
  void Say(std::string_view bytes) const {
    send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  std::string Hear(size_t size) const {
    std::string bytes(size, '\0');
    const ssize_t got = recv(fd.get(), bytes.data(), size, MSG_WAITALL);
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return bytes;
  }
  UniqueFd fd;
};

// Somebody who listens where a node is said to be.
class Impostor {
 public:
  explicit Impostor(std::function<void(const Raw&)> play) {
    sockaddr_in address = LoopbackAddress(0);
    socklen_t size = sizeof address;
    REQUIRE(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(listener_.get(), 4) == 0);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this, play = std::move(play)] {
      play(Raw(UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC))));
    });
  }
  ~Impostor() { thread_.join(); }
  const std::string& address() const { return address_; }

 private:
  const UniqueFd listener_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::string address_;
  std::thread thread_;
};

// Those of connections for blocks; gRPC has as many as it likes.
size_t ConnectionsHere() {
  size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    count += name == "links blocks" || name == "links serve" ? 1 : 0;
  }
  return count;
}

TEST_CASE("an answer says no more than an answer can") {
  CHECK(IsSound({0, 100, kMaxBlockBytes}));
  CHECK(IsSound({14, kMaxAnswerTextBytes, 0}));
  CHECK_FALSE(IsSound({17, 0, 0}));                       // No code.
  CHECK_FALSE(IsSound({0, kMaxAnswerTextBytes + 1, 0}));  // Memory for nothing.
  CHECK_FALSE(IsSound({0, 0, kMaxBlockBytes + 1}));
  CHECK_FALSE(IsSound({5, 10, 1}));  // A block, and a reason why there is none.
}

TEST_CASE("blocks of all sizes come whole, many at once, with their checksums") {
  const TlsDirectory directory;
  LinksOptions options = TestLinksOptions();
  if (GENERATE(false, true)) {
    directory.Make("ours");
    options.credentials = directory.Load("ours");
  }
  TestNode one({kOne}, Giving(options)), two({kTwo}, Giving(options));
  Meet(one, two, two.address());
  two.links().SetAddress(kOne, one.address());
  std::mutex mutex;
  std::condition_variable changed;
  size_t right = 0, wrong = 0, asked = 0;
  for (const size_t size : {0, 1, 7, 4096, 100'000, 1 << 20, 5'000'000, 100'001}) {
    for (int again = 0; again < 4; ++again) {
      TestNode& asker = again % 2 == 0 ? one : two;
      ++asked;
      asker.links().Fetch(again % 2 == 0 ? kOne : kTwo, again % 2 == 0 ? kTwo : kOne,
                          absl::StrCat(size), kTestPatience,
                          [&, size, again](absl::StatusOr<std::unique_ptr<ReceivedBlock>> block) {
                            const std::string wanted = BytesOfBlock(size);
                            std::string bytes(size, '\0');
                            bool fine = block.ok() && (*block)->size() == size &&
                                        (*block)->head() == absl::StrCat("head ", size);
                            if (fine && again >= 2) fine = (*block)->Keep().ok();
                            if (fine) fine = (*block)->CopyTo({bytes.data(), size}).ok();
                            if (bytes != wanted) fine = false;
                            std::lock_guard lock(mutex);
                            ++(fine ? right : wrong);
                            changed.notify_all();
                          });
    }
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return right + wrong == asked; });
  CHECK(wrong == 0);
}

TEST_CASE("questions that wait for a connection go together, and are answered in their order") {
  sockaddr_in address = LoopbackAddress(0);
  socklen_t size = sizeof address;
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(listen(listener.get(), 8) == 0);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const Digest key = SecretBytes();
  ConnectionThreads threads;
  BlockFetcher::Options options;
  options.address = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  const auto fetcher = std::make_shared<BlockFetcher>(std::move(options), threads);
  std::mutex mutex;
  std::map<std::string, std::string> heads;  // By request.
  constexpr size_t kTogether = BlockFetcher::kMostTogether;
  constexpr size_t kAll = BlockFetcher::kConnections + kTogether;
  const auto ask = [&](size_t i) {
    const std::string request = absl::StrCat(100 + i);
    BlockFetcher::Question question;
    question.ticket = MakeTicket(key, 1, i + 1, request);
    question.key = key;
    question.peer_dialled_link = true;
    question.request = request;
    question.deadline = MonotonicNow() + kTestPatience;
    question.done = [&, request](auto block) {
      std::lock_guard lock(mutex);
      heads[request] = block.ok() ? (*block)->head() : std::string(block.status().message());
    };
    CHECK(fetcher->Ask(question));
  };
  for (size_t i = 0; i < BlockFetcher::kConnections; ++i) ask(i);
  std::vector<std::unique_ptr<Raw>> raws;
  std::vector<std::string> first;
  constexpr size_t kQuestion = sizeof(QuestionHeader) + 3;
  for (size_t i = 0; i < BlockFetcher::kConnections; ++i) {
    raws.push_back(
        std::make_unique<Raw>(UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC))));
    Greeting greeting;
    const std::string hello = raws.back()->Hear(kBlockMagic.size() + sizeof greeting);
    REQUIRE(hello.size() == kBlockMagic.size() + sizeof greeting);
    std::memcpy(&greeting, hello.data() + kBlockMagic.size(), sizeof greeting);
    raws.back()->Say(AsView(ProofOfAnswerer(key, 1, true, greeting.nonce)));
    first.push_back(raws.back()->Hear(kQuestion));
  }
  for (size_t i = BlockFetcher::kConnections; i < kAll; ++i) ask(i);
  // The head is the request once more; there are no bytes.
  const auto answer = [](const Raw& raw, const std::string& question) {
    const AnswerHeader header{0, 3, 0};
    raw.Say(std::string(BytesOf(header)) + question.substr(question.size() - 3));
  };
  answer(*raws[0], first[0]);
  const std::string together = raws[0]->Hear(kTogether * kQuestion);  // Before one is answered.
  REQUIRE(together.size() == kTogether * kQuestion);
  for (size_t i = 0; i < kTogether; ++i)
    answer(*raws[0], together.substr(i * kQuestion, kQuestion));
  for (size_t i = 1; i < raws.size(); ++i) answer(*raws[i], first[i]);
  CHECK(WaitUntil(kTestPatience, [&] {
    std::lock_guard lock(mutex);
    return heads.size() == kAll;
  }));
  fetcher->Close("the test is over");
  threads.AwaitAll();
  for (const auto& [request, head] : heads) CHECK(head == request);
}

TEST_CASE("what was not kept is gone once it was handed over, and disturbs nobody") {
  TestNode one({kOne}), two({kTwo}, Giving());
  Meet(one, two, two.address());
  for (const size_t size : {size_t{1000}, size_t{20'000'000}}) {
    absl::StatusOr<std::unique_ptr<ReceivedBlock>> late = absl::UnknownError("none");
    std::atomic<bool> done{false};
    one.links().Fetch(kOne, kTwo, absl::StrCat(size), kTestPatience, [&](auto block) {
      late = std::move(block);
      done = true;
    });
    REQUIRE(WaitUntil(kTestPatience, [&] { return done.load(); }));
    auto next = one.Fetch(kTwo, "5000");  // Over the same connection, or a new one.
    REQUIRE(late.ok());
    std::string bytes(size, '\0');
    CHECK(absl::IsUnavailable((*late)->CopyTo({bytes.data(), size})));
    REQUIRE(next.status().ToString() == "OK");
    bytes.resize(5000);
    REQUIRE((*next)->CopyTo({bytes.data(), bytes.size()}).ok());
    CHECK(bytes == BytesOfBlock(5000));
  }
}

TEST_CASE("a block whose connection is cut is unavailable, not damaged, and can be had again") {
  TestNode one({kOne}, Giving()), two({kTwo}, Giving());
  Proxy proxy(two.address());
  Meet(one, two, proxy.address());
  proxy.Throttle(4'000'000);
  std::thread cutter([&] {
    one.Await([] { return false; }, 400 * kMillisecond);
    proxy.Throttle(0);
    proxy.Cut();
  });
  const absl::Status status = one.Fetch(kTwo, "20000000").status();
  cutter.join();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  auto again = one.Fetch(kTwo, "2000000");
  REQUIRE(again.status().ToString() == "OK");
  std::string bytes(2'000'000, '\0');
  REQUIRE((*again)->CopyTo({bytes.data(), bytes.size()}).ok());
  CHECK(bytes == BytesOfBlock(bytes.size()));
}

TEST_CASE("who takes nothing of a block is not waited for, and holds nothing") {
  std::weak_ptr<const void> held;
  std::mutex mutex;
  LinksOptions options = TestLinksOptions();
  options.on_fetch = [&](ProcessId, std::string, LinksOptions::Respond respond) {
    auto bytes = std::make_shared<std::string>(64 << 20, 'b');
    {
      std::lock_guard lock(mutex);
      held = bytes;
    }
    respond(Block{"", {bytes->data(), bytes->size()}, bytes});
  };
  TestNode one({kOne}), two({kTwo}, options);
  Proxy proxy(two.address());
  Meet(one, two, proxy.address());
  proxy.Throttle(1'000'000);
  std::thread hole([&] {
    WaitUntil(kTestPatience, [&] {
      std::lock_guard lock(mutex);
      return !held.expired();
    });
    proxy.Throttle(0);
    proxy.Swallow(Proxy::Hole::kBoth);
  });
  CHECK_FALSE(one.Fetch(kTwo, "x", 2 * kSecond).ok());
  hole.join();
  CHECK(WaitUntil(kTestPatience, [&] {
    std::lock_guard lock(mutex);
    return held.expired();
  }));
}

TEST_CASE("connections over which nothing is asked go, and their threads") {
  LinksOptions options = Giving();
  options.idle_limit = 200 * kMillisecond;
  TestNode one({kOne}, options), two({kTwo}, options);
  Meet(one, two, two.address());
  for (int round = 0; round < 2; ++round) {
    REQUIRE(one.Fetch(kTwo, "1000").ok());
    CHECK(WaitUntil(kTestPatience, [&] { return ConnectionsHere() == 0; }));
  }
}

TEST_CASE("an impostor at a node's address is asked nothing, even if it has the asker sign") {
  TestNode one({kOne}, Giving()), two({kTwo}, Giving());
  const bool one_dialled = GENERATE(true, false);
  if (one_dialled) {
    Meet(one, two, two.address());
  } else {
    two.links().SetAddress(kOne, one.address());
    two.Send(kOne, "hello");
    REQUIRE(one.AwaitFrames(1));
  }
  const bool reflects = GENERATE(true, false);
  std::string asked;
  size_t signed_bytes = 0;
  {
    const Impostor impostor([&](const Raw& asker) {
      const std::string greeting = asker.Hear(kBlockMagic.size() + sizeof(Greeting));
      std::string proof(sizeof(Digest), 'p');
      if (reflects) {
        const Raw mirror(one.address());
        mirror.Say(greeting);
        proof = mirror.Hear(sizeof(Digest));
      }
      signed_bytes = proof.size();
      asker.Say(proof);
      asked = asker.Hear(sizeof(QuestionHeader));
    });
    one.links().SetAddress(kTwo, impostor.address());
    const absl::Status status = one.Fetch(kTwo, "1000").status();
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(absl::StrContains(status.message(), "not the other end"));
  }
  CHECK(signed_bytes == sizeof(Digest));
  CHECK(asked.empty());
}

TEST_CASE("strangers get nothing, however they ask, and nobody is disturbed") {
  TestNode one({kOne}, Giving()), two({kTwo}, Giving());
  Meet(one, two, two.address());
  REQUIRE(one.Fetch(kTwo, "1000").ok());
  const auto refused = [&] { return two.links().figures().refused_handshakes; };
  const uint64_t before = refused();
  SECTION("of a link that is none") {
    const Raw raw(two.address());
    raw.Say(std::string(kBlockMagic) + std::string(BytesOf(Greeting{4711, {}})));
    CHECK(raw.Hear(1).empty());
    CHECK(WaitUntil(kTestPatience, [&] { return refused() > before; }));
  }
  SECTION("in the open, garbage") {
    const Raw raw(two.address());
    raw.Say(std::string(kBlockMagic) + std::string(1 << 20, '\xff'));
    CHECK(raw.Hear(1).empty());
    CHECK(WaitUntil(kTestPatience, [&] { return refused() > before; }));
  }
  SECTION("some that say no more than what they are, or less") {
    std::vector<std::unique_ptr<Raw>> some;
    for (size_t i = 0; i < 20; ++i) {
      some.push_back(std::make_unique<Raw>(two.address()));
      some.back()->Say(kBlockMagic.substr(0, i));
    }
    TestNode three({RayletOf(3)});
    three.links().SetAddress(kTwo, two.address());
    CHECK(three.Fetch(kTwo, "1000").ok());
  }
  CHECK(one.Fetch(kTwo, "1000").ok());
}

TEST_CASE("of too many strangers the oldest goes of the address that has most") {
  sockaddr_in address = LoopbackAddress(0);
  socklen_t size = sizeof address;
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(listen(listener.get(), 4) == 0);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const std::string port = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  std::atomic<size_t> refused{0};
  ConnectionThreads threads;
  BlockService::Options options;
  options.tls = [] { return nullptr; };
  options.on_refused = [&] { ++refused; };
  BlockService service(std::move(options), threads);
  std::vector<std::unique_ptr<Raw>> all;
  const auto connect = [&](const std::string& peer) {
    all.push_back(std::make_unique<Raw>(port));
    service.Accept(UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)), peer);
  };
  const auto stands = [](const Raw& raw) {
    char byte;
    return recv(raw.fd.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
  };
  connect("ipv4:10.0.0.1:1");
  for (size_t i = 1; i < BlockService::kMaxStrangers; ++i)
    connect(absl::StrCat("ipv4:10.0.0.", i % 2 == 0 || i == 1 ? 3 : 2, ":", i));
  CHECK(refused == 0);
  connect("ipv4:10.0.0.4:1");
  CHECK(all[1]->Hear(1).empty());  // Of 10.0.0.3, which has one more than 10.0.0.2.
  for (const size_t other : {size_t{0}, size_t{2}, size_t{3}, all.size() - 1})
    CHECK(stands(*all[other]));
  CHECK(WaitUntil(kTestPatience, [&] { return refused == 1; }));
  service.Stop();
  threads.AwaitAll();
  CHECK(refused == BlockService::kMaxStrangers + 1);
}

TEST_CASE("a question that came before, or is not of the one who signs it, is refused") {
  // What the asking end says is recorded by somebody in between, who says it again.
  const bool arrives = GENERATE(true, false);
  TestNode one({kOne}, Giving()), two({kTwo}, Giving());
  Meet(one, two, two.address());
  std::string greeting, question;
  const std::string two_address = two.address();
  {
    const Impostor between([&](const Raw& asker) {
      const Raw answerer(two_address);
      greeting = asker.Hear(kBlockMagic.size() + sizeof(Greeting));
      answerer.Say(greeting);
      asker.Say(answerer.Hear(sizeof(Digest)));
      question = asker.Hear(sizeof(QuestionHeader) + 4);
      if (!arrives) return;
      answerer.Say(question);
      asker.Say(answerer.Hear(sizeof(AnswerHeader) + 9 + 1000 + sizeof(BlockCrc)));
    });
    one.links().SetAddress(kTwo, between.address());
    REQUIRE(one.Fetch(kTwo, "1000").ok() == arrives);
    one.links().SetAddress(kTwo, two_address);
  }
  const Raw again(two_address);
  again.Say(greeting);
  REQUIRE(again.Hear(sizeof(Digest)).size() == sizeof(Digest));
  const bool is_long = GENERATE(true, false);
  if (!arrives && is_long) {  // A length that nothing has; else the same again, or another request.
    const uint32_t many = UINT32_MAX;
    std::memcpy(question.data() + sizeof(FetchTicket), &many, sizeof many);
  } else if (!arrives) {
    question.back() = '1';
  }
  again.Say(question);
  AnswerHeader header;
  const std::string answer = again.Hear(sizeof header);
  REQUIRE(answer.size() == sizeof header);
  std::memcpy(&header, answer.data(), sizeof header);
  CHECK(header.code == static_cast<uint32_t>(!arrives && is_long
                                                 ? absl::StatusCode::kInvalidArgument
                                                 : absl::StatusCode::kUnauthenticated));
  CHECK(header.bytes == 0);
  again.Hear(header.text_bytes);
  CHECK(again.Hear(1).empty());  // And that was the end of it.
}

TEST_CASE("with certificates all is encrypted, and both ends show theirs") {
  const TlsDirectory directory;
  directory.Make("ours");
  directory.Make("theirs");
  directory.MakeNode("mail", "ours", {"mail.example.org"});
  directory.MakeNode("node", "ours", {"node.example.org"});
  const auto with = [&](Credentials credentials) {
    LinksOptions options = TestLinksOptions();
    options.credentials = std::move(credentials);
    options.credentials.token = kTestToken;
    return Giving(options);
  };
  const std::string name = GENERATE("", "node.example.org");
  TestNode one({kOne}, with(directory.Load("node", name)));
  TestNode two({kTwo}, with(directory.Load("node", name)));
  Meet(one, two, two.address());
  REQUIRE(one.Fetch(kTwo, "1000").ok());
  SECTION("who speaks without TLS is not heard") {
    const Raw raw(two.address());
    raw.Say(std::string(kBlockMagic) + std::string(BytesOf(Greeting{1, {}})));
    const std::string heard = raw.Hear(sizeof(Digest));
    CHECK((heard.empty() || heard[0] == 0x15));  // An alert of TLS.
  }
  SECTION("who is asked hears nothing before it has shown a certificate") {
    std::string heard;
    {
      const Impostor plain([&](const Raw& asker) {
        heard = asker.Hear(kBlockMagic.size() + 1);
        asker.Say(std::string(sizeof(Digest), 'p'));
      });
      one.links().SetAddress(kTwo, plain.address());
      CHECK(one.Fetch(kTwo, "1000").status().code() == absl::StatusCode::kUnavailable);
    }
    CHECK(heard == std::string(kBlockMagic) + '\x16');  // A handshake of TLS.
  }
  SECTION("nor with one of another authority, or under another name") {
    const std::string set = name.empty() ? "theirs" : "mail";
    TestNode other({kTwo}, with(directory.Load(set)));
    one.links().SetAddress(kTwo, other.address());
    const absl::Status status = one.Fetch(kTwo, "1000").status();
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(absl::StrContains(status.message(), "certificate"));
  }
}

}  // namespace blocks_test
}  // namespace sheaf
