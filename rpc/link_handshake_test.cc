// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who gets in, what each end learns of the other, and that no byte of a handshake may be another.
#include "rpc/link_handshake.h"

#include <catch2/catch.hpp>

#include "rpc/fetch_session.h"

namespace sheaf {
namespace link_handshake_test {

const std::string kToken(32, 't');

Introduction Raylet(NodeNumber node) {
  Introduction out;
  out.end = RayletOf(node);
  out.wanted = kGcs;
  out.incarnation = 77;
  out.stream = 100 + node;
  out.known_stream = 9;
  out.has_messages = 12;
  out.lost_connection = 5;
  out.version = "1.2.3";
  return out;
}

TEST_CASE("two ends that know the token meet") {
  DiallerHandshake dialler(kToken, SecretBytes());
  AcceptorHandshake acceptor(kToken, SecretBytes());
  const auto challenge = acceptor.Challenge(dialler.Hello());
  REQUIRE(challenge.ok());
  const auto proof = dialler.Answer(*challenge, Raylet(4));
  REQUIRE(proof.ok());
  CHECK(proof->find(kToken) == std::string::npos);
  const auto who = acceptor.Check(*proof);
  REQUIRE(who.ok());
  CHECK(who->end == RayletOf(4));
  CHECK(who->wanted == kGcs);
  CHECK(who->incarnation == 77);
  CHECK(who->stream == 104);
  CHECK(who->known_stream == 9);
  CHECK(who->has_messages == 12);
  CHECK(who->lost_connection == 5);
  CHECK(who->version == "1.2.3");
  CHECK_FALSE(who->guest);
  SECTION("and share a session key that nobody else has") {
    Introduction gcs = Raylet(0);
    gcs.end = kGcs;
    const auto other = dialler.Conclude(acceptor.Accept(gcs));
    REQUIRE(other.status().ToString() == "OK");
    CHECK(other->end == kGcs);
    CHECK(dialler.session_key() == acceptor.session_key());
    CHECK(dialler.connection() == acceptor.connection());
    CHECK(dialler.session_key() != Digest{});
  }
  SECTION("or the dialler hears why not") {
    const auto other = dialler.Conclude(acceptor.Refuse(SameVersion("2.0", who->version)));
    CHECK(other.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(std::string(other.status().message()).find("1.2.3") != std::string::npos);
    CHECK(std::string(other.status().message()).find("2.0") != std::string::npos);
  }
}

TEST_CASE("a dialler with another token gets nothing, and so does an acceptor") {
  const std::string wrong = GENERATE(std::string(32, 'w'), std::string(), std::string(31, 't'));
  DiallerHandshake dialler(wrong, SecretBytes());
  AcceptorHandshake acceptor(kToken, SecretBytes());
  const auto proof = dialler.Answer(*acceptor.Challenge(dialler.Hello()), Raylet(4));
  CHECK(acceptor.Check(*proof).status().code() == absl::StatusCode::kUnauthenticated);

  DiallerHandshake victim(kToken, SecretBytes());
  AcceptorHandshake impostor(wrong, SecretBytes());
  const auto shown = victim.Answer(*impostor.Challenge(victim.Hello()), Raylet(4));
  CHECK_FALSE(impostor.Check(*shown).ok());
  CHECK(victim.Conclude(impostor.Accept(Raylet(1))).status().code() ==
        absl::StatusCode::kUnauthenticated);
}

TEST_CASE("a proof is good for its own challenge and its own role only") {
  DiallerHandshake dialler(kToken, SecretBytes());
  AcceptorHandshake acceptor(kToken, SecretBytes()), other(kToken, SecretBytes());
  const std::string hello = dialler.Hello();
  const auto proof = dialler.Answer(*acceptor.Challenge(hello), Raylet(4));
  REQUIRE(other.Challenge(hello).ok());
  CHECK(other.Check(*proof).status().code() == absl::StatusCode::kUnauthenticated);  // Replayed.
  CHECK(dialler.Conclude(*proof).status().code() == absl::StatusCode::kUnauthenticated);  // Echoed.
}

TEST_CASE("no bit of a proof or a verdict may be another") {
  for (size_t bit = 0; bit < 1200; bit += 7) {
    DiallerHandshake dialler(kToken, Digest{});
    AcceptorHandshake acceptor(kToken, Digest{});
    std::string proof = *dialler.Answer(*acceptor.Challenge(dialler.Hello()), Raylet(4));
    std::string changed = proof;
    changed[bit / 8 % changed.size()] ^= static_cast<char>(1 << bit % 8);
    CHECK_FALSE(acceptor.Check(changed).ok());
    REQUIRE(acceptor.Check(proof).ok());
    std::string verdict = acceptor.Accept(Raylet(1));
    verdict[bit / 8 % verdict.size()] ^= static_cast<char>(1 << bit % 8);
    CHECK_FALSE(dialler.Conclude(verdict).ok());
  }
}

TEST_CASE("what is no handshake is refused by its first bytes") {
  AcceptorHandshake acceptor(kToken, SecretBytes());
  CHECK_FALSE(acceptor.Challenge("").ok());
  CHECK_FALSE(acceptor.Challenge("GET / HTTP/1.1").ok());
  CHECK_FALSE(acceptor.Challenge(std::string(40, 'x')).ok());
  CHECK_FALSE(acceptor.Check("").ok());
  CHECK_FALSE(acceptor.Check(std::string(2000, 'x')).ok());
}

TEST_CASE("a fetch is proved by its session's key, once") {
  const Digest key = SecretBytes();
  FetchSession session(key, 1, /*dialled=*/true, RayletOf(3));
  CHECK(session.Check(MakeTicket(key, 1, 1, "a")).ok());
  CHECK(session.Check(MakeTicket(key, 1, 3, "c")).ok());
  CHECK(session.Check(MakeTicket(key, 1, 2, "b")).ok());  // Calls overtake each other.
  CHECK_FALSE(session.Check(MakeTicket(key, 1, 3, "c")).ok());
  CHECK_FALSE(session.Check(MakeTicket(key, 1, 0, "z")).ok());
  CHECK_FALSE(session.Check(MakeTicket(SecretBytes(), 1, 4, "d")).ok());
  FetchTicket other = MakeTicket(key, 1, 4, "d");
  other.request_hash = Sha256("e");
  CHECK_FALSE(session.Check(other).ok());
  CHECK(session.Check(MakeTicket(key, 1, 6000, "far")).ok());
  CHECK_FALSE(session.Check(MakeTicket(key, 1, 4, "d")).ok());  // Too old to be known.
  CHECK(session.Check(MakeTicket(key, 1, 5999, "near")).ok());
}

TEST_CASE("who answers shows that it is the other end, and not the asking one") {
  const Digest key = SecretBytes(), nonce = SecretBytes();
  const Digest right = ProofOfAnswerer(key, 1, /*dialled=*/true, nonce);
  CHECK(FetchSession(key, 1, true, RayletOf(3)).Proof(nonce) == right);
  CHECK(FetchSession(key, 1, false, RayletOf(3)).Proof(nonce) != right);  // Its own question.
  CHECK(FetchSession(key, 2, true, RayletOf(3)).Proof(nonce) != right);
  CHECK(FetchSession(key, 1, true, RayletOf(3)).Proof(SecretBytes()) != right);
  CHECK(FetchSession(SecretBytes(), 1, true, RayletOf(3)).Proof(nonce) != right);
}

}  // namespace link_handshake_test
}  // namespace sheaf
