// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/authenticator.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/text/same_secret.h"

namespace sheaf::http {
namespace {

constexpr size_t kEndDigits = 16, kNumberDigits = 32,
                 kSealDigits = 64;  // Hexadecimal, of a session.

std::string RandomDigits(size_t digits) {
  std::string bytes(digits / 2, '\0');
  SHEAF_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()),
                         static_cast<int>(bytes.size())) == 1,
              "the kernel gives random bytes");
  return absl::BytesToHexString(bytes);
}

absl::string_view Abseil(std::string_view text) { return {text.data(), text.size()}; }

// The token of "Authorization: Bearer TOKEN", or of the header that operators of Kubernetes send beside it.
std::optional<std::string_view> BearerOf(const Request& request) {
  for (const std::string_view name : {"authorization", "x-ray-authorization"}) {
    std::string_view value = request.Header(name);
    if (!absl::StartsWithIgnoreCase(Abseil(value), "bearer ")) continue;
    value.remove_prefix(7);
    while (value.starts_with(' ')) value.remove_prefix(1);
    while (value.ends_with(' ')) value.remove_suffix(1);
    return value;
  }
  return std::nullopt;
}

// Browsers give a cookie to all ports of a host; each cluster of a machine has one of its own. The
// port is that which the browser sees, whatever stands between.
std::string CookieName(const Request& request) {
  const std::string_view host = request.Header("host");
  const size_t colon = host.rfind(':');
  const std::string_view port =
      colon == std::string_view::npos ? std::string_view() : host.substr(colon + 1);
  const bool is_port = !port.empty() && port.size() <= 5 &&
                       std::all_of(port.begin(), port.end(), absl::ascii_isdigit);
  return absl::StrCat(Abseil(kSessionCookie), is_port ? "-" : "", is_port ? Abseil(port) : "");
}

std::string_view CookieOf(const Request& request) {
  const std::string name = CookieName(request);
  std::string_view cookies = request.Header("cookie");
  while (!cookies.empty()) {
    std::string_view one = cookies.substr(0, cookies.find(';'));
    cookies.remove_prefix(std::min(cookies.size(), one.size() + 1));
    while (one.starts_with(' ')) one.remove_prefix(1);
    if (one.starts_with(name) && one.substr(name.size()).starts_with('=')) {
      return one.substr(name.size() + 1);
    }
  }
  return {};
}

bool IsBrowser(const Request& request) {
  return std::any_of(request.headers.begin(), request.headers.end(), [](const auto& header) {
    const auto& [name, value] = header;
    return name == "origin" || name == "referer" || name.starts_with("sec-fetch-") ||
           (name == "user-agent" && value.find("Mozilla") != std::string::npos);
  });
}

}  // namespace

std::string HostOf(std::string_view host_and_port) {
  const size_t bracket = host_and_port.find(']');
  const size_t colon = host_and_port.find(':', bracket == std::string_view::npos ? 0 : bracket);
  return absl::AsciiStrToLower(Abseil(host_and_port.substr(0, colon)));
}

Authenticator::Authenticator(std::vector<std::string> hosts, std::string token,
                             std::string session_key, const Clock& clock)
    : hosts_(std::move(hosts)),
      token_(std::move(token)),
      session_key_(session_key.empty() ? RandomDigits(64) : std::move(session_key)),
      clock_(clock) {}

bool Authenticator::KnownHost(std::string_view host_and_port) const {
  return std::find(hosts_.begin(), hosts_.end(), HostOf(host_and_port)) != hosts_.end();
}

Origin Authenticator::OriginOf(const Request& request) const {
  const std::optional<std::string_view> header = Find(request.headers, "origin");
  if (!header) return Origin::kNone;
  std::string_view origin = *header;
  const std::string_view scheme = request.secure ? "https://" : "http://";
  const bool same_scheme = origin.starts_with(scheme);
  const size_t end = origin.find("://");
  if (end == std::string_view::npos) return Origin::kOther;  // "null" of a sandboxed page.
  origin.remove_prefix(end + 3);
  if (same_scheme && absl::EqualsIgnoreCase(Abseil(origin), Abseil(request.Header("host")))) {
    return Origin::kSame;
  }
  return KnownHost(origin) ? Origin::kSameHost : Origin::kOther;
}

Credential Authenticator::CredentialOf(const Request& request) {
  if (const std::optional<std::string_view> given = BearerOf(request)) {
    if (!token_.empty() && SameSecret(*given, token_)) return Credential::kToken;
    // Where no token is wanted, one that clients send to all their servers is no offence.
    if (!token_.empty()) {
      CountWrong(request.peer, *given);
      return Credential::kWrongToken;
    }
  }
  return IsSession(CookieOf(request)) ? Credential::kCookie : Credential::kNone;
}

Caller Authenticator::Identify(const Request& request, bool web_socket, bool has_certificate) {
  Caller caller;
  caller.credential = CredentialOf(request);
  if (caller.credential == Credential::kNone && has_certificate) {
    caller.credential = Credential::kCertificate;
  }
  caller.host_known = KnownHost(request.Header("host"));
  caller.browser = IsBrowser(request);
  caller.origin = OriginOf(request);
  const std::string_view site = request.Header("sec-fetch-site");
  caller.same_origin_fetch = site == "same-origin";
  caller.says_site = !site.empty();
  caller.cross_site = !site.empty() && !caller.same_origin_fetch && site != "none" &&
                      caller.origin != Origin::kSameHost;
  caller.page_header = Find(request.headers, "x-sheaf").has_value();
  caller.web_socket = web_socket;
  return caller;
}

void Authenticator::CountWrong(const std::string& address, std::string_view token) {
  Shown shown{address, absl::HashOf(Abseil(token))};
  if (wrong_.size() < kMaxWatchedTokens || wrong_.contains(shown)) ++wrong_[std::move(shown)];
}

bool Authenticator::Blocked(const Request& request) {
  const std::optional<std::string_view> given = BearerOf(request);
  if (!given) return false;
  if (clock_.Now() >= minute_end_) {
    wrong_.clear();
    minute_end_ = Deadline(clock_.Now(), 60 * kSecond);
  }
  const auto found = wrong_.find(Shown{request.peer, absl::HashOf(Abseil(*given))});
  return found != wrong_.end() && found->second >= kWrongTokensPerMinute;
}

std::string Authenticator::Seal(std::string_view text) const {
  std::array<unsigned char, EVP_MAX_MD_SIZE> seal{};
  unsigned int bytes = 0;
  const bool sealed = HMAC(EVP_sha256(), session_key_.data(), static_cast<int>(session_key_.size()),
                           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                           seal.data(), &bytes) != nullptr;
  SHEAF_CHECK(sealed, "HMAC-SHA256 takes any text");
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(seal.data()), bytes));
}

std::string Authenticator::NewSession() const {
  const std::string text =
      absl::StrCat(absl::Hex(Deadline(clock_.Now(), kSessionLife), absl::kZeroPad16),
                   RandomDigits(kNumberDigits));
  return absl::StrCat(text, Seal(text));
}

bool Authenticator::IsSession(std::string_view session) const {
  if (token_.empty() || session.size() != kEndDigits + kNumberDigits + kSealDigits) return false;
  const std::string_view text = session.substr(0, kEndDigits + kNumberDigits);
  if (!SameSecret(session.substr(text.size()), Seal(text))) return false;
  Nanos end = 0;
  return absl::SimpleHexAtoi(Abseil(text.substr(0, kEndDigits)), &end) && clock_.Now() < end;
}

Response Authenticator::LogIn(const Request& request) {
  if (token_.empty()) return PlainText(401, "This server has no token to log in with.");
  if (!BearerOf(request)) return PlainText(401, "The token is missing.");
  if (Blocked(request)) return PlainText(429, kTooManyWrong);
  if (CredentialOf(request) != Credential::kToken) return PlainText(403, "The token is wrong.");
  Response response{.body = R"({"status":"authenticated","message":"Token is valid"})"};
  response.headers.emplace_back(
      "Set-Cookie", absl::StrCat(CookieName(request), "=", NewSession(),
                                 "; Path=/; HttpOnly; SameSite=Strict; Max-Age=",
                                 kSessionLife / kSecond, request.secure ? "; Secure" : ""));
  return response;
}

void Authenticator::AddRoutes(Router& router) {
  router.Add({.method = "GET",
              .pattern = "/api/authentication_mode",
              .right = Right::kOpen,
              .handler = [this](const Request&, const Reply& reply) {
                reply.Send({.body = token_.empty() ? R"({"authentication_mode":"disabled"})"
                                                   : R"({"authentication_mode":"token"})"});
              }});
  router.Add({.method = "POST",
              .pattern = "/api/authenticate",
              .right = Right::kOpen,
              .handler = [this](const Request& request, const Reply& reply) {
                reply.Send(LogIn(request));
              }});
}

}  // namespace sheaf::http
