// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a stranger can send to a link's port: nothing gets past a MAC that was not made with the
// token, and what is behind the MAC (members may be of other versions) is checked all the same.
#include <cstring>

#include "rpc/blocks/block_wire.h"
#include "rpc/fetch_session.h"
#include "rpc/link_handshake.h"
#include "rpc/listen_address.h"
#include "tests/fuzz/fuzz_target.h"

using namespace sheaf;

namespace {

const std::string kToken(32, 't');

Introduction Self() {
  Introduction self;
  self.end = RayletOf(3);
  self.incarnation = 5;
  self.stream = 6;
  self.version = "1.0";
  return self;
}

std::string Right(std::string_view role, const std::string& hello, const std::string& challenge,
                  const std::string& proof, const std::string& body) {
  const Digest mac = proof.empty() ? HmacSha256(kToken, {role, hello, challenge, body})
                                   : HmacSha256(kToken, {role, hello, challenge, proof, body});
  return body + std::string(AsView(mac));
}

}  // namespace

// An input: which message (1 byte), then its bytes.
std::vector<std::string> fuzz::Seeds() {
  DiallerHandshake dialler(kToken, Digest{});
  AcceptorHandshake acceptor(kToken, Digest{});
  const std::string hello = dialler.Hello();
  const std::string challenge = *acceptor.Challenge(hello);
  const std::string proof = *dialler.Answer(challenge, Self());
  (void)acceptor.Check(proof);
  const std::string verdict = acceptor.Accept(Self());
  const size_t mac = sizeof(Digest);
  return {std::string(1, 0) + hello,
          std::string(1, 1) + proof,
          std::string(1, 2) + proof.substr(0, proof.size() - mac),
          std::string(1, 3) + verdict,
          std::string(1, 4) + verdict.substr(0, verdict.size() - mac),
          std::string(1, 5) + std::string(BytesOf(MakeTicket(Digest{}, 1, 1, "request"))),
          std::string(1, 6) + "[::1]:80"};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const uint8_t which = input.Byte() % 7;
  const std::string bytes = input.Rest();
  DiallerHandshake dialler(kToken, Digest{});
  AcceptorHandshake acceptor(kToken, Digest{});
  const std::string hello = dialler.Hello();
  switch (which) {
    case 0: {
      FUZZ_CHECK(acceptor.Challenge(bytes).ok() ==
                 (bytes.size() == 40 && bytes.substr(0, 8) == hello.substr(0, 8)));
      return 0;
    }
    case 1:
    case 2: {
      const std::string challenge = *acceptor.Challenge(hello);
      const std::string real = *dialler.Answer(challenge, Self());
      const auto peer = acceptor.Check(
          which == 1 ? bytes : Right("sheaf link 1: dialler", hello, challenge, "", bytes));
      FUZZ_CHECK(which == 2 || peer.ok() == (bytes == real));
      FUZZ_CHECK(!peer.ok() || (peer->stream != 0 && peer->version.size() <= kMaxVersionBytes));
      return 0;
    }
    case 3:
    case 4: {
      const std::string challenge = *acceptor.Challenge(hello);
      const std::string proof = *dialler.Answer(challenge, Self());
      (void)acceptor.Check(proof);
      const std::string real = acceptor.Accept(Self());
      const auto peer = dialler.Conclude(
          which == 3 ? bytes : Right("sheaf link 1: acceptor", hello, challenge, proof, bytes));
      FUZZ_CHECK(which == 4 || peer.ok() == (bytes == real));
      FUZZ_CHECK(!peer.ok() || (peer->stream != 0 && !peer->guest));
      return 0;
    }
    case 5: {
      FetchTicket ticket;
      if (bytes.size() != sizeof ticket) return 0;
      std::memcpy(&ticket, bytes.data(), sizeof ticket);
      FetchSession session(Digest{}, 1, /*dialled=*/true, RayletOf(1));
      if (session.Check(ticket).ok()) FUZZ_CHECK(!session.Check(ticket).ok());
      return 0;
    }
    default: {
      const auto address = ParseListenAddress(bytes);
      if (address.ok()) FUZZ_CHECK(ParseListenAddress(address->ToString()).ok());
      return 0;
    }
  }
}
