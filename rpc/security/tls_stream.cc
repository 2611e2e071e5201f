// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/security/tls_stream.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/security/certificates.h"

namespace sheaf {
namespace {

// AES first, with the shorter key, as blocks are large; and no more system calls than needed.
constexpr char kCiphers[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
constexpr size_t kReadAhead = 256 * 1024;

std::string LastError() {
  char text[256] = "";
  ERR_error_string_n(ERR_peek_last_error(), text, sizeof text);
  ERR_clear_error();
  return text;
}

bool IsNumeric(const std::string& host) {
  unsigned char address[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), address) == 1;
}

int Bounded(size_t size) { return static_cast<int>(std::min<size_t>(size, INT_MAX)); }

}  // namespace

absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Make(const Credentials& credentials) {
  ERR_clear_error();
  SSL_CTX* const context = SSL_CTX_new(TLS_method());
  if (context == nullptr) return absl::InvalidArgumentError(LastError());
  std::shared_ptr<const TlsContext> made(new TlsContext(context));
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context, kCiphers);
  SSL_CTX_set_num_tickets(context, 0);  // No session is taken up again.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, kReadAhead);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  X509_STORE_set_flags(SSL_CTX_get_cert_store(context),
                       X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
  if (!UseCertificates(credentials.authority_pem, credentials.certificate_pem, credentials.key_pem,
                       context)) {
    return absl::InvalidArgumentError(
        absl::StrCat("OpenSSL cannot use these certificates: ", LastError()));
  }
  return made;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

TlsStream::TlsStream(const TlsContext& context, int socket, const std::string& host,
                     uint64_t bytes_of_one_key)
    : ssl_(SSL_new(context.context_)), bytes_of_one_key_(bytes_of_one_key) {
  SSL_set_fd(ssl_, socket);
  if (host.empty()) {
    SSL_set_accept_state(ssl_);
    return;
  }
  SSL_set_connect_state(ssl_);
  if (IsNumeric(host)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_), host.c_str());
  } else {
    SSL_set1_host(ssl_, host.c_str());
    SSL_set_tlsext_host_name(ssl_, host.c_str());
  }
}

TlsStream::~TlsStream() { SSL_free(ssl_); }

absl::StatusOr<bool> TlsStream::Handshake() {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  if (result == 1) return true;
  const int error = SSL_get_error(ssl_, result);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return false;
  const long verdict = SSL_get_verify_result(ssl_);
  if (verdict != X509_V_OK) {
    return absl::UnauthenticatedError(
        absl::StrCat("the certificates do not fit: ", X509_verify_cert_error_string(verdict)));
  }
  return absl::UnavailableError(absl::StrCat("no TLS with the other end: ", LastError()));
}

ssize_t TlsStream::Result(int result) const {
  if (result > 0) return result;
  const int error = SSL_get_error(ssl_, result);
  if (error == SSL_ERROR_ZERO_RETURN) return 0;
  errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
  return -1;
}

ssize_t TlsStream::Read(char* to, size_t most) {
  ERR_clear_error();
  return Result(SSL_read(ssl_, to, Bounded(most)));
}

ssize_t TlsStream::Write(const char* from, size_t size) {
  ERR_clear_error();
  const ssize_t put = Result(SSL_write(ssl_, from, Bounded(size)));
  if (put <= 0) return put;
  written_ += static_cast<uint64_t>(put);
  // Between two writes only: OpenSSL refuses it while one is unfinished. It leaves with the next.
  if (written_ >= bytes_of_one_key_ && SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) {
    written_ = 0;
    ++keys_;
  }
  return put;
}

bool TlsStream::has_unread() const { return SSL_has_pending(ssl_) == 1; }
bool TlsStream::wants_to_write() const { return SSL_want_write(ssl_); }

std::vector<std::string> TlsStream::PeerNames() const {
  X509* const certificate = SSL_get0_peer_certificate(ssl_);
  return certificate == nullptr ? std::vector<std::string>() : NamesOf(certificate);
}

}  // namespace sheaf
