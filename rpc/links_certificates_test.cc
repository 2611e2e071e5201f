// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Links whose certificates are replaced while they run, and whose peers must carry a name.
#include <algorithm>

#include "base/testing/wait_until_for_test.h"
#include "rpc/links_node_for_test.h"
#include "rpc/proxy_for_test.h"
#include "rpc/security/tls_directory_for_test.h"

namespace sheaf {
namespace links_certificates_test {

constexpr ProcessId kOne{1, 0}, kTwo{2, 0}, kThree{3, 0}, kFour{4, 0};

LinksOptions With(const Credentials& certificates) {
  LinksOptions options = TestLinksOptions();
  options.silence_limit = 10 * kSecond;
  const std::string token = options.credentials.token;
  options.credentials = certificates;
  options.credentials.token = token;
  return options;
}

bool Reaches(TestNode& from, TestNode& to, ProcessId peer, const std::string& address) {
  const uint64_t before = to.frames();
  from.links().SetAddress(peer, address);
  from.Send(peer, "hello");
  return to.AwaitFrames(before + 1);
}

TEST_CASE("new certificates count for new connections, and links that stand stay up") {
  const TlsDirectory directory;
  directory.Make("old");
  directory.Make("new");
  TestNode one({kOne}, With(directory.Load("old"))), two({kTwo}, With(directory.Load("old")));
  REQUIRE(Reaches(one, two, kTwo, two.address()));
  REQUIRE(one.Fetch(kTwo, "x").ok());
  const int64_t before = two.links().figures().certificates_expire;

  for (TestNode* node : {&one, &two}) {
    REQUIRE(node->links().SetCertificates(directory.Load("new")).ToString() == "OK");
  }
  TestNode three({kThree}, With(directory.Load("new")));
  CHECK(Reaches(three, two, kTwo, two.address()));
  CHECK(Reaches(one, three, kThree, three.address()));
  TestNode four({kFour}, With(directory.Load("old")));
  four.links().SetAddress(kTwo, two.address());
  four.Send(kTwo, "let me in");
  CHECK(four.AwaitReason(absl::StatusCode::kUnauthenticated));

  CHECK(Reaches(one, two, kTwo, two.address()));
  CHECK(one.Fetch(kTwo, "x").ok());  // By a new connection, which only new certificates make.
  for (TestNode* node : {&one, &two}) {
    CHECK(node->links().figures().reconnects == 0);
    const auto events = node->events();
    CHECK(std::all_of(events.begin(), events.end(), [](const auto& event) { return event.up; }));
  }
  CHECK(two.links().figures().certificates_expire >= before);
}

// As an authority is replaced without a moment in which somebody is refused.
TEST_CASE("with both authorities in ca.pem nodes of the old and of the new set meet") {
  const TlsDirectory directory;
  directory.Make("old");
  directory.Make("new");
  const std::string both = directory.Read("old/ca.pem") + directory.Read("new/ca.pem");
  directory.Replace("old/ca.pem", both);
  directory.Replace("new/ca.pem", both);
  TestNode one({kOne}, With(directory.Load("old"))), two({kTwo}, With(directory.Load("new")));
  CHECK(Reaches(one, two, kTwo, two.address()));
  REQUIRE(one.links().SetCertificates(directory.Load("new")).ok());
  TestNode three({kThree}, With(directory.Load("old")));
  CHECK(Reaches(three, one, kOne, one.address()));
  CHECK(Reaches(two, three, kThree, three.address()));
}

TEST_CASE("a link whose certificates have expired comes up again with new ones") {
  const TlsDirectory directory;
  directory.Make("short", 2);
  directory.Make("new");
  const LinksOptions options = With(directory.Load("short"));
  TestNode one({kOne}, options), two({kTwo}, options);
  Proxy proxy(two.address());
  REQUIRE(Reaches(one, two, kTwo, proxy.address()));
  const int64_t expire = one.links().figures().certificates_expire;
  REQUIRE(expire > 0);
  REQUIRE(WaitUntil(kTestPatience, [&] { return UnixNow() / kSecond > expire; }));
  CHECK(Reaches(one, two, kTwo, proxy.address()));  // What stands goes on.
  proxy.Cut();
  REQUIRE(one.AwaitReason(absl::StatusCode::kUnauthenticated));
  one.Send(kTwo, "kept");
  for (TestNode* node : {&one, &two}) {
    REQUIRE(node->links().SetCertificates(directory.Load("new")).ToString() == "OK");
    CHECK(node->links().figures().certificates_expire > expire + 1000);
  }
  CHECK(two.AwaitFrames(3));
  CHECK(one.AwaitLink(kTwo, true));
}

TEST_CASE("certificates that are none change nothing, and links without any get none") {
  const TlsDirectory directory;
  directory.Make("used");
  directory.Make("other");
  TestNode one({kOne}, With(directory.Load("used"))), two({kTwo}, With(directory.Load("used")));
  Credentials broken = directory.Load("other");
  broken.authority_pem = "nonsense";
  CHECK(one.links().SetCertificates(broken).code() == absl::StatusCode::kInvalidArgument);
  CHECK(one.links().SetCertificates(Credentials()).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Reaches(one, two, kTwo, two.address()));
  TestNode plain({kThree});
  CHECK(plain.links().SetCertificates(directory.Load("other")).code() ==
        absl::StatusCode::kFailedPrecondition);
  CHECK(plain.links().figures().certificates_expire == 0);
}

TEST_CASE("of one authority's certificates only those with the name of nodes let in") {
  const TlsDirectory directory;
  directory.Make("authority");
  directory.MakeNode("node", "authority", {"sheaf.example.org"});
  directory.MakeNode("mail", "authority", {"mail.example.org"});
  const LinksOptions strict = With(directory.Load("node", "Sheaf.example.org"));
  TestNode one({kOne}, strict), two({kTwo}, strict);
  const LinksOptions other = With(directory.Load("mail"));  // It looks at no names itself.
  TestNode three({kThree}, other);
  SECTION("those that have it") {
    CHECK(Reaches(one, two, kTwo, two.address()));
    CHECK(one.Fetch(kTwo, "x").ok());
  }
  SECTION("another one that dials") {
    three.links().SetAddress(kTwo, two.address());
    three.Send(kTwo, "let me in");
    REQUIRE(three.AwaitReason(absl::StatusCode::kUnauthenticated));
    CHECK(two.frames() == 0);
    CHECK(two.links().figures().refused_handshakes > 0);
  }
  SECTION("another one that is dialled") {
    one.links().SetAddress(kThree, three.address());
    one.Send(kThree, "is it you?");
    REQUIRE(one.AwaitReason(absl::StatusCode::kUnauthenticated));
    CHECK(three.frames() == 0);
  }
  SECTION("and none of its own that other nodes would refuse") {
    const auto loaded = LoadCertificates(directory.PathOf("mail"), "sheaf.example.org");
    CHECK(loaded.status().code() == absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace links_certificates_test
}  // namespace sheaf
