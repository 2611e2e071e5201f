// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/security/credentials.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/escaping.h"
#include "base/testing/scratch_directory_for_test.h"
#include "rpc/listen_address.h"
#include "rpc/security/certificates.h"

namespace sheaf {
namespace credentials_test {

std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

mode_t ModeOf(const std::string& path) {
  struct stat info;
  REQUIRE(stat(path.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

TEST_CASE("a token file is made once, for this user alone, and read ever after") {
  const ScratchDirectory directory;
  const std::string path = directory / "token";
  CHECK(LoadToken(path).status().code() == absl::StatusCode::kNotFound);
  const auto token = LoadOrMakeToken(path);
  REQUIRE(token.ok());
  CHECK(token->size() == 32);
  CHECK(ModeOf(path) == 0600);
  CHECK(Read(path) == absl::BytesToHexString(*token) + "\n");
  CHECK(*LoadOrMakeToken(path) == *token);
  CHECK(*LoadToken(path) == *token);
  CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
  SECTION("one that others can read is refused") {
    chmod(path.c_str(), 0640);
    CHECK(LoadOrMakeToken(path).status().code() == absl::StatusCode::kPermissionDenied);
  }
  SECTION("one without a token is refused, and stays as it is") {
    std::ofstream(path) << "secret";
    const auto wrong = LoadOrMakeToken(path);
    CHECK(wrong.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(wrong.status().message()).find("secret") == std::string::npos);
    CHECK(Read(path) == "secret");
  }
}

TEST_CASE("a secret that root keeps for a group, as Kubernetes mounts them, is read by others") {
  if (geteuid() != 0) return;  // Only root can give files away.
  constexpr gid_t kGroup = 10001;
  const ScratchDirectory directory;
  chmod(directory.path().c_str(), 0755);
  const std::string path = directory / "token";
  std::ofstream(path) << std::string(64, 'a');
  REQUIRE(chown(path.c_str(), 0, kGroup) == 0);
  const auto read_with = [&](mode_t mode) {
    REQUIRE(chmod(path.c_str(), mode) == 0);
    REQUIRE(setegid(kGroup) == 0);
    REQUIRE(seteuid(kGroup) == 0);
    const absl::StatusCode code = LoadToken(path).status().code();
    REQUIRE(seteuid(0) == 0);
    REQUIRE(setegid(0) == 0);
    return code;
  };
  CHECK(read_with(0440) == absl::StatusCode::kOk);
  CHECK(read_with(0640) == absl::StatusCode::kOk);
  CHECK(read_with(0660) == absl::StatusCode::kPermissionDenied);
  CHECK(read_with(0444) == absl::StatusCode::kPermissionDenied);
}

TEST_CASE("a secret of any form gives the same token to all who know it") {
  CHECK(absl::BytesToHexString(TokenOf("a secret of some length")) ==
        "a5c4fdcf7e67d3c7bdf6edd50e78235ab897bedf5eb325a700b297d33184b3ae");
}

TEST_CASE("a token is 64 hexadecimal digits") {
  const std::string digits = "00112233445566778899aabbccddeeffFFEEDDCCBBAA99887766554433221100";
  const auto token = ParseToken("  " + digits + "\n");
  REQUIRE(token.ok());
  CHECK(token->size() == 32);
  CHECK((*token)[1] == 0x11);
  CHECK_FALSE(ParseToken(digits.substr(1)).ok());
  CHECK_FALSE(ParseToken("g" + digits.substr(1)).ok());
  CHECK_FALSE(ParseToken("").ok());
}

TEST_CASE("a set of certificates is made once and can be loaded") {
  const ScratchDirectory directory;
  const std::string place = directory / "certificates";
  REQUIRE(MakeCertificateSet(place, {"node1.example.org", "10.0.0.7"}).ToString() == "OK");
  CHECK(ModeOf(place) == 0700);
  CHECK(ModeOf(place + "/node.key") == 0600);
  CHECK(ModeOf(place + "/ca.key") == 0600);
  const auto loaded = LoadCertificates(place);
  REQUIRE(loaded.status().ToString() == "OK");
  CHECK(loaded->has_certificates());
  CHECK_FALSE(loaded->has_token());
  const std::string before = Read(place + "/ca.pem");
  CHECK(MakeCertificateSet(place, {}).code() == absl::StatusCode::kAlreadyExists);
  CHECK(Read(place + "/ca.pem") == before);
  SECTION("a key that others can read is refused") {
    chmod((place + "/node.key").c_str(), 0644);
    CHECK(LoadCertificates(place).status().code() == absl::StatusCode::kPermissionDenied);
  }
  SECTION("a key of another certificate is refused") {
    const std::string other = directory / "other";
    REQUIRE(MakeCertificateSet(other, {}).ok());
    std::ofstream(place + "/node.key") << Read(other + "/node.key");
    CHECK(LoadCertificates(place).status().code() == absl::StatusCode::kInvalidArgument);
  }
  SECTION("a file that is missing or no PEM is named") {
    std::ofstream(place + "/ca.pem") << "nonsense";
    CHECK(LoadCertificates(place).status().code() == absl::StatusCode::kInvalidArgument);
    unlink((place + "/ca.pem").c_str());
    CHECK(LoadCertificates(place).status().code() == absl::StatusCode::kNotFound);
  }
}

TEST_CASE("an authority makes further certificates, and only with its own key") {
  const ScratchDirectory directory;
  const std::string authority = directory / "authority", node = directory / "node";
  REQUIRE(MakeCertificateSet(authority, {}).ok());
  REQUIRE(MakeNodeCertificate(authority, node, {"node2"}).ToString() == "OK");
  CHECK(LoadCertificates(node).status().ToString() == "OK");
  CHECK(ModeOf(node + "/node.key") == 0600);
  CHECK(Read(node + "/ca.pem") == Read(authority + "/ca.pem"));
  CHECK_FALSE(std::filesystem::exists(node + "/ca.key"));
  CHECK(MakeNodeCertificate(authority, node, {}).code() == absl::StatusCode::kAlreadyExists);
  CHECK(MakeNodeCertificate(node, directory / "n", {}).code() == absl::StatusCode::kNotFound);
  REQUIRE(MakeCertificateSet(directory / "other", {}).ok());
  std::ofstream(authority + "/ca.key") << Read(directory / "other" + "/ca.key");
  CHECK(MakeNodeCertificate(authority, directory / "n", {}).code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("ca.pem may hold several authorities, of which one counts") {
  const ScratchDirectory directory;
  const std::string first = directory / "first", second = directory / "second";
  REQUIRE(MakeCertificateSet(first, {}, -60).ok());  // Its time is over, and nobody needs it.
  REQUIRE(MakeCertificateSet(second, {}, 3600).ok());
  std::ofstream(second + "/ca.pem", std::ios::app) << Read(first + "/ca.pem");
  CHECK(LoadCertificates(second).status().ToString() == "OK");
  const auto loaded = LoadCertificates(second);
  CHECK(*ExpiryOf(loaded->authority_pem, loaded->certificate_pem) > time(nullptr) + 3000);
  std::ofstream(second + "/ca.pem", std::ios::app) << "-----BEGIN CERTIFICATE-----\nhalf of one";
  CHECK(LoadCertificates(second).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("certificates that have expired are refused, with the day") {
  const ScratchDirectory directory;
  const std::string good = directory / "good", over = directory / "over";
  REQUIRE(MakeCertificateSet(good, {}, 3600).ok());
  const auto loaded = LoadCertificates(good);
  REQUIRE(loaded.status().ToString() == "OK");
  const auto expiry = ExpiryOf(loaded->authority_pem, loaded->certificate_pem);
  REQUIRE(expiry.ok());
  CHECK(std::abs(*expiry - (time(nullptr) + 3600)) < 60);
  CHECK(*ExpiryOf(loaded->certificate_pem) == *expiry);
  CHECK(ExpiryOf("no PEM").status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(MakeCertificateSet(over, {}, -60).ok());
  const absl::Status refused = LoadCertificates(over).status();
  CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(refused.message()).find("was good until") != std::string::npos);
}

TEST_CASE("a host that could be more than a host goes into no certificate") {
  const ScratchDirectory directory;
  for (const char* host : {"", "a,DNS:evil", "a b", "host:80"}) {
    CHECK(MakeCertificateSet(directory / "c", {host}).code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK_FALSE(std::filesystem::exists(directory / "c"));
}

TEST_CASE("addresses as users write them") {
  CHECK(ParseListenAddress("127.0.0.1:80")->is_loopback());
  CHECK(ParseListenAddress("localhost:0")->is_loopback());
  CHECK(ParseListenAddress("[::1]:7")->is_loopback());
  CHECK(ParseListenAddress("[::1]:7")->ToString() == "[::1]:7");
  CHECK_FALSE(ParseListenAddress("0.0.0.0:80")->is_loopback());
  CHECK_FALSE(ParseListenAddress("[::]:80")->is_loopback());
  CHECK_FALSE(ParseListenAddress("node1:80")->is_loopback());
  CHECK(ParseListenAddress("node1.example.org:65535")->port == 65535);
  for (const char* wrong : {"", ":", "host", "host:", ":80", "host:65536", "host:-1", "host:8x",
                            "::1:80", "[::1]", "[::g]:1", "a b:1", "unix:/tmp/x", "host:000080"}) {
    INFO(wrong);
    CHECK(ParseListenAddress(wrong).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace credentials_test
}  // namespace sheaf
