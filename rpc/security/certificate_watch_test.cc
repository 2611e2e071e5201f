// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/security/certificate_watch.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "base/log.h"
#include "base/testing/wait_until_for_test.h"
#include "rpc/security/tls_directory_for_test.h"

namespace sheaf {
namespace certificate_watch_test {

constexpr Nanos kPatience = 30 * kSecond;
constexpr Nanos kPeriod = 10 * kMillisecond;

// What a watch hands on, in order.
class Sink {
 public:
  CertificateWatch::OnNew Taker(absl::Status answer = absl::OkStatus()) {
    return [this, answer](const Credentials& next) {
      const std::lock_guard lock(mutex_);
      taken_.push_back(next.certificate_pem);
      changed_.notify_all();
      return answer;
    };
  }
  // The `count`th, and that there are no more.
  std::string Await(size_t count) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::nanoseconds(kPatience),
                              [&] { return taken_.size() >= count; }));
    CHECK(taken_.size() == count);
    return taken_.back();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> taken_;
};

// The log, in a file: waits for words in it.
class LogFile {
 public:
  explicit LogFile(const TlsDirectory& directory) : directory_(directory) {
    LogOptions options;
    options.file = directory.PathOf("log");
    REQUIRE(StartLog(options).ok());
  }
  ~LogFile() { CHECK(StartLog(LogOptions()).ok()); }
  size_t Count(const std::string& words) const {
    FlushLog();
    const std::string text = directory_.Read("log");
    size_t count = 0;
    for (size_t at = 0; (at = text.find(words, at)) != std::string::npos; ++at) ++count;
    return count;
  }
  bool Await(const std::string& words) const {
    return WaitUntil(kPatience, [&] { return Count(words) > 0; });
  }

 private:
  const TlsDirectory& directory_;
};

TEST_CASE("a set of certificates that replaces another is handed on once, and only whole") {
  const TlsDirectory directory;
  const LogFile log(directory);
  for (const char* set : {"used", "second", "third"}) directory.Make(set);
  Sink sink;
  const CertificateWatch watch(directory.PathOf("used"), directory.Load("used"), sink.Taker(),
                               10 * kPeriod);  // Longer than a busy machine takes for three files.
  SECTION("file by file") {
    directory.ReplaceSet("used", "second");
    CHECK(sink.Await(1) == directory.Read("second/node.pem"));
    directory.ReplaceSet("used", "third");
    CHECK(sink.Await(2) == directory.Read("third/node.pem"));
  }
  SECTION("by a rename of the directory") {
    std::filesystem::rename(directory.PathOf("used"), directory.PathOf("old"));
    std::filesystem::rename(directory.PathOf("second"), directory.PathOf("used"));
    CHECK(sink.Await(1) == directory.Read("used/node.pem"));
  }
  SECTION("the same bytes in new files are nothing new") {
    directory.ReplaceSet("used", "used");
    directory.ReplaceSet("used", "second");
    CHECK(sink.Await(1) == directory.Read("second/node.pem"));
  }
  CHECK(log.Count("cannot be used") == 0);
}

TEST_CASE("a set that cannot be used is said once, and what comes after it is used") {
  const TlsDirectory directory;
  const LogFile log(directory);
  for (const char* set : {"used", "second", "third"}) directory.Make(set);
  Sink sink;
  const CertificateWatch watch(directory.PathOf("used"), directory.Load("used"), sink.Taker(),
                               kPeriod);
  SECTION("the key of another certificate") {
    directory.Replace("used/node.key", directory.Read("third/node.key"));
    REQUIRE(log.Await("node.key is not the key of node.pem"));
  }
  SECTION("a certificate of another authority") {
    directory.Replace("used/ca.pem", directory.Read("third/ca.pem"));
    REQUIRE(log.Await("ca.pem did not sign node.pem"));
  }
  SECTION("one that has expired") {
    directory.Make("over", -60);
    directory.ReplaceSet("used", "over");
    REQUIRE(log.Await("was good until"));
  }
  SECTION("a file that is gone") {
    std::filesystem::remove(directory.PathOf("used/node.pem"));
    REQUIRE(log.Await("No such file"));
  }
  usleep(20 * kPeriod / 1000);  // Many looks later.
  CHECK(log.Count("cannot be used") == 1);
  CHECK(log.Count("those from before stay in use") == 1);
  directory.ReplaceSet("used", "second");
  CHECK(sink.Await(1) == directory.Read("second/node.pem"));
}

TEST_CASE("new certificates too must carry the name that peers want") {
  const TlsDirectory directory;
  const LogFile log(directory);
  directory.Make("authority");
  directory.MakeNode("used", "authority", {"sheaf.example.org"});
  directory.MakeNode("other", "authority", {"mail.example.org"});
  directory.MakeNode("good", "authority", {"sheaf.example.org"});
  Sink sink;
  const CertificateWatch watch(directory.PathOf("used"),
                               directory.Load("used", "sheaf.example.org"), sink.Taker(), kPeriod);
  directory.ReplaceSet("used", "other");
  REQUIRE(log.Await("carries no name 'sheaf.example.org'"));
  directory.ReplaceSet("used", "good");
  CHECK(sink.Await(1) == directory.Read("good/node.pem"));
}

}  // namespace certificate_watch_test
}  // namespace sheaf
