// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/link_handshake.h"

#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text/same_secret.h"

namespace sheaf {
namespace {

constexpr uint64_t kGreetingMagic = 0x314b'4e49'4c46'4853;  // "SHFLINK1".
constexpr uint64_t kProofMagic = 0x3146'4f52'5046'4853;     // "SHFPROF1".
constexpr uint64_t kVerdictMagic = 0x3154'4352'4456'4853;   // "SHVDRCT1".
constexpr char kDialler[] = "sheaf link 1: dialler";
constexpr char kAcceptor[] = "sheaf link 1: acceptor";
constexpr char kSession[] = "sheaf link 1: session";
constexpr char kConnection[] = "sheaf link 1: connection";

// Hello and Challenge: the magic, then the nonce.
std::string Greeting(const Digest& nonce) {
  std::string out(reinterpret_cast<const char*>(&kGreetingMagic), sizeof kGreetingMagic);
  return out.append(AsView(nonce));
}

absl::Status CheckGreeting(std::string_view greeting) {
  if (greeting.size() != sizeof kGreetingMagic + sizeof(Digest) ||
      std::memcmp(greeting.data(), &kGreetingMagic, sizeof kGreetingMagic) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the first ", greeting.size(), " bytes are no greeting of a Sheaf link"));
  }
  return absl::OkStatus();
}

template <class T>
void Put(T value, std::string* out) {
  static_assert(std::is_integral_v<T>);
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}
void PutText(std::string_view text, std::string* out) {
  Put(static_cast<uint16_t>(text.size()), out);
  out->append(text);
}

// Takes numbers and texts from the front; `ok` is false for ever once one was missing.
struct Reader {
  std::string_view rest;
  bool ok = true;

  template <class T>
  T Number() {
    T value{};
    if (rest.size() < sizeof value) {
      ok = false;
      return value;
    }
    std::memcpy(&value, rest.data(), sizeof value);
    rest.remove_prefix(sizeof value);
    return value;
  }
  std::string Text(size_t most) {
    const size_t size = Number<uint16_t>();
    if (size > most || size > rest.size()) {
      ok = false;
      return {};
    }
    std::string text(rest.substr(0, size));
    rest.remove_prefix(size);
    return text;
  }
};

void PutIntroduction(const Introduction& self, std::string* out) {
  Put(self.end.packed(), out);
  Put(static_cast<uint8_t>(self.guest), out);
  Put(self.wanted.packed(), out);
  Put(self.incarnation, out);
  Put(self.stream, out);
  Put(self.known_stream, out);
  Put(self.has_messages, out);
  Put(self.lost_connection, out);
  Put(self.gcs_term.cluster, out);
  Put(self.gcs_term.term, out);
  PutText(std::string_view(self.version).substr(0, kMaxVersionBytes), out);
}

Introduction ReadIntroduction(Reader* reader) {
  Introduction out;
  out.end = ProcessId::Unpack(reader->Number<uint64_t>());
  const auto guest = reader->Number<uint8_t>();
  out.guest = guest == 1;
  out.wanted = ProcessId::Unpack(reader->Number<uint64_t>());
  out.incarnation = reader->Number<uint64_t>();
  out.stream = reader->Number<uint64_t>();
  out.known_stream = reader->Number<uint64_t>();
  out.has_messages = reader->Number<uint64_t>();
  out.lost_connection = reader->Number<uint64_t>();
  out.gcs_term.cluster = reader->Number<uint64_t>();
  out.gcs_term.term = reader->Number<uint64_t>();
  out.version = reader->Text(kMaxVersionBytes);
  const bool named = out.end == kGcs || (out.end.is_raylet() && !out.guest);
  reader->ok = reader->ok && guest <= 1 && named && out.stream != 0;
  return out;
}

// Splits off the MAC at the end.
bool Split(std::string_view message, std::string_view* body, std::string_view* mac) {
  if (message.size() < sizeof(Digest) || message.size() > kMaxHandshakeBytes) return false;
  *body = message.substr(0, message.size() - sizeof(Digest));
  *mac = message.substr(body->size());
  return true;
}

uint64_t NumberOf(const Digest& session_key) {
  const Digest digest = HmacSha256(AsView(session_key), {kConnection});
  uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof number);
  return number;
}

}  // namespace

std::string DiallerHandshake::Hello() { return hello_ = Greeting(nonce_); }

absl::StatusOr<std::string> DiallerHandshake::Answer(std::string_view challenge,
                                                     const Introduction& self) {
  SHEAF_RETURN_IF_ERROR(CheckGreeting(challenge));
  challenge_ = challenge;
  Put(kProofMagic, &proof_);
  PutIntroduction(self, &proof_);
  proof_.append(AsView(HmacSha256(token_, {kDialler, hello_, challenge_, proof_})));
  return proof_;
}

absl::StatusOr<Introduction> DiallerHandshake::Conclude(std::string_view verdict) {
  std::string_view body, mac;
  if (!Split(verdict, &body, &mac)) {
    return absl::InvalidArgumentError(absl::StrCat("a verdict of ", verdict.size(), " bytes"));
  }
  if (!SameSecret(mac, AsView(HmacSha256(token_, {kAcceptor, hello_, challenge_, proof_, body})))) {
    return absl::UnauthenticatedError(
        "the other end does not know this cluster's token; compare the token files");
  }
  Reader reader{body};
  const auto magic = reader.Number<uint64_t>();
  const auto code = reader.Number<uint32_t>();
  const std::string reason = reader.Text(kMaxReasonBytes);
  if (!reader.ok || magic != kVerdictMagic || code > 16) {
    return absl::InvalidArgumentError("a verdict that cannot be read");
  }
  if (code != 0) return absl::Status(static_cast<absl::StatusCode>(code), reason);
  Introduction peer = ReadIntroduction(&reader);
  if (!reader.ok || !reader.rest.empty() || peer.guest) {
    return absl::InvalidArgumentError("a verdict that cannot be read");
  }
  session_key_ = HmacSha256(token_, {kSession, hello_, challenge_, proof_, verdict});
  connection_ = NumberOf(session_key_);
  return peer;
}

absl::StatusOr<std::string> AcceptorHandshake::Challenge(std::string_view hello) {
  SHEAF_RETURN_IF_ERROR(CheckGreeting(hello));
  hello_ = hello;
  return challenge_ = Greeting(nonce_);
}

absl::StatusOr<Introduction> AcceptorHandshake::Check(std::string_view proof) {
  std::string_view body, mac;
  if (!Split(proof, &body, &mac) ||
      !SameSecret(mac, AsView(HmacSha256(token_, {kDialler, hello_, challenge_, body})))) {
    return absl::UnauthenticatedError("it does not know this cluster's token");
  }
  proof_ = proof;
  Reader reader{body};
  const auto magic = reader.Number<uint64_t>();
  Introduction peer = ReadIntroduction(&reader);
  if (!reader.ok || !reader.rest.empty() || magic != kProofMagic) {
    return absl::InvalidArgumentError("a proof that cannot be read");
  }
  return peer;
}

std::string AcceptorHandshake::Finish(std::string verdict) {
  verdict.append(AsView(HmacSha256(token_, {kAcceptor, hello_, challenge_, proof_, verdict})));
  session_key_ = HmacSha256(token_, {kSession, hello_, challenge_, proof_, verdict});
  connection_ = NumberOf(session_key_);
  return verdict;
}

std::string AcceptorHandshake::Accept(const Introduction& self) {
  std::string verdict;
  Put(kVerdictMagic, &verdict);
  Put(uint32_t{0}, &verdict);
  PutText({}, &verdict);
  PutIntroduction(self, &verdict);
  return Finish(std::move(verdict));
}

std::string AcceptorHandshake::Refuse(const absl::Status& reason) {
  std::string verdict;
  Put(kVerdictMagic, &verdict);
  Put(static_cast<uint32_t>(reason.raw_code()), &verdict);
  PutText(
      std::string_view(reason.message().data(), reason.message().size()).substr(0, kMaxReasonBytes),
      &verdict);
  return Finish(std::move(verdict));
}

absl::Status SameVersion(std::string_view self, std::string_view peer) {
  if (self == peer) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "one end runs Sheaf ", absl::string_view(peer.data(), peer.size()), ", the other ",
      absl::string_view(self.data(), self.size()), "; install the same version on all nodes"));
}

}  // namespace sheaf
