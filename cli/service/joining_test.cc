// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/service/joining.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <optional>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "base/config.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/testing/wait_until_for_test.h"
#include "base/unique_fd.h"
#include "base/version.h"
#include "cli/node_connections.h"
#include "rpc/links_node_for_test.h"

namespace sheaf::cli {
namespace {

using Catch::Contains;

constexpr Nanos kShort = 200 * kMillisecond;
constexpr Nanos kLong = 60 * kSecond;
constexpr char kHead[] = "127.0.0.1:6379";
constexpr char kNowhere[] = "head.invalid:6379";  // RFC 6761: no name ends so.
constexpr char kUnanswered[] = "unanswered.invalid:6379";

// A resolver whose servers are silent, for one name.
class SilentResolver {
 public:
  int Ask() {
    MutexLock lock(mutex_);
    ++asked_;
    answers_.WaitFor(mutex_, kLong,
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return over_; });
    return EAI_AGAIN;
  }
  int asked() {
    const MutexLock lock(mutex_);
    return asked_;
  }
  void Answer() {
    const MutexLock lock(mutex_);
    over_ = true;
    answers_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar answers_;
  int asked_ ABSL_GUARDED_BY(mutex_) = 0;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
};
SilentResolver& Resolver() {
  static auto* const resolver = new SilentResolver;  // Whom it has let wait may outlive the test.
  return *resolver;
}

struct Ends {
  UniqueFd signals{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  UniqueFd parent;

  void Signal() {
    const uint64_t one = 1;
    REQUIRE(write(signals.get(), &one, sizeof(one)) == sizeof(one));
  }
  Joining To(const char* head, Nanos limit) {
    return Joining(head, limit, signals.get(), parent.get());
  }
};

// A head that answers when it is told to end, and not before.
class SilentHead {
 public:
  absl::Status Await() {
    MutexLock lock(mutex_);
    refused_or_late_.WaitFor(mutex_, kLong, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return refused_.has_value();
    });
    return refused_.value_or(absl::InternalError("nobody ended it"));
  }
  void Refuse(absl::Status why) {
    const MutexLock lock(mutex_);
    refused_ = std::move(why);
    refused_or_late_.NotifyOne();
  }

 private:
  Mutex mutex_;
  CondVar refused_or_late_;
  std::optional<absl::Status> refused_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace
}  // namespace sheaf::cli

// In place of the C library's, which it asks for all names but that one.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  using Function = decltype(&getaddrinfo);
  const bool numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (!numeric && name != nullptr && std::string_view(name) == "unanswered.invalid")
    return sheaf::cli::Resolver().Ask();
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return next(name, service, hints, found);
}

namespace sheaf::cli {

TEST_CASE("a node that joins waits for the name of its head") {
  Ends ends;
  CHECK(ends.To(kHead, kShort).AwaitWay().value() == "127.0.0.1");
  CHECK(absl::IsInvalidArgument(ends.To("head", kShort).AwaitWay().status()));

  const absl::Status late = ends.To(kNowhere, kShort).AwaitWay().status();
  CHECK(absl::IsDeadlineExceeded(late));
  CHECK_THAT(std::string(late.message()), Contains(kNowhere) && Contains("no address is known"));
}

TEST_CASE("a signal ends a node that waits for its head, and stays to be read") {
  Ends ends;
  CHECK(ends.To(kHead, kLong).Wanted().ok());
  ends.Signal();
  CHECK(absl::IsCancelled(ends.To(kHead, kLong).Wanted()));
  CHECK(absl::IsCancelled(ends.To(kNowhere, kLong).AwaitWay().status()));
  SilentHead head;
  const absl::Status ended = ends.To(kHead, kLong)
                                 .Run([&head] { return head.Await(); },
                                      [&head](absl::Status why) { head.Refuse(std::move(why)); });
  CHECK(absl::IsCancelled(ended));
  CHECK_THAT(std::string(ended.message()), Contains("signal"));
}

TEST_CASE("a node hears signals, and its time, while nobody answers where its head is") {
  Ends ends;
  const absl::Status late = ends.To(kUnanswered, kShort).AwaitWay().status();
  CHECK(absl::IsDeadlineExceeded(late));
  absl::Status ended;
  {
    ThreadExecutor node("node");
    const int before = Resolver().asked();
    node.Post([&] { ended = ends.To(kUnanswered, kLong).AwaitWay().status(); });
    REQUIRE(WaitUntil(kLong, [&] { return Resolver().asked() > before; }));
    ends.Signal();
  }  // It ends when that has.
  CHECK(absl::IsCancelled(ended));
  Resolver().Answer();
}

TEST_CASE("a program's own node does not wait longer than the program") {
  Ends ends;
  int pipe[2];
  REQUIRE(pipe2(pipe, O_CLOEXEC) == 0);
  ends.parent.Reset(pipe[0]);
  UniqueFd program(pipe[1]);
  CHECK(ends.To(kHead, kLong).Wanted().ok());
  program.Reset();
  const absl::Status ended = ends.To(kNowhere, kLong).AwaitWay().status();
  CHECK(absl::IsCancelled(ended));
  CHECK(ended.message() == "the program that started it is over");
}

TEST_CASE("what became of joining is told as it is, but for a head that does not answer") {
  Ends ends;
  const auto never = [](const absl::Status&) { FAIL("nobody wanted it to end"); };
  const Joining joining = ends.To(kHead, 3 * kSecond);
  CHECK(joining.Run([] { return absl::OkStatus(); }, never).ok());
  const absl::Status refused = absl::FailedPreconditionError("another version");
  CHECK(joining.Run([&] { return refused; }, never) == refused);
  const absl::Status late =
      joining.Run([] { return absl::DeadlineExceededError("the GCS does not answer"); }, never);
  CHECK(absl::IsDeadlineExceeded(late));
  CHECK(late.message() ==
        "the head 127.0.0.1:6379 could not be joined within 3 s (--timeout): it does not answer");
}

TEST_CASE("of a head that can be reached nobody says why it could not before") {
  Settings settings;
  settings.token = absl::BytesToHexString(kTestToken);
  NodeFlags flags;
  flags.join = TestNode({}).address();  // Nobody is there any more.
  Ends ends;
  Joining joining = ends.To(flags.join.c_str(), kShort);
  const auto why = [&joining] {
    const auto late = [] { return absl::DeadlineExceededError("the GCS does not answer"); };
    return std::string(joining.Run(late, [](const absl::Status&) {}).message());
  };
  ConnectionEvents events;
  events.on_gcs_link = [](bool, uint64_t) {};
  events.on_unreachable = [&joining](std::string why) { joining.OnUnreachable(std::move(why)); };
  const auto connections = NodeConnections::Start(flags, settings, false, "", events);
  REQUIRE(connections.status().ToString() == "OK");
  (*connections)->ToGcs(ProcessId{}, FrameKind::kGcsRequest, "let me in");
  REQUIRE(WaitUntil(kLong, [&] { return absl::StrContains(why(), "Connection refused"); }));

  LinksOptions options = TestLinksOptions();
  options.listen_address = flags.join;
  options.version = std::string(kSheafVersion);
  TestNode head({kGcs}, options);
  REQUIRE(head.AwaitFrames(1));
  CHECK(WaitUntil(kLong, [&] { return absl::StrContains(why(), "it does not answer"); }));
}

}  // namespace sheaf::cli
