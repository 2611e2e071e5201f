// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "http/client_for_test.h"
#include "http/server.h"

namespace sheaf::http {
namespace {

struct Pair {
  std::string certificate, key;  // PEM.
};

std::string TextOf(BIO* bio) {
  char* bytes = nullptr;
  const long length = BIO_get_mem_data(bio, &bytes);
  std::string text(bytes, static_cast<size_t>(length));
  BIO_free(bio);
  return text;
}

// A certificate that signs itself, and so is its own authority.
Pair SelfSigned() {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  REQUIRE(X509_sign(certificate, key, EVP_sha256()) > 0);
  BIO* certificate_bio = BIO_new(BIO_s_mem());
  BIO* key_bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(certificate_bio, certificate);
  PEM_write_bio_PrivateKey(key_bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return {TextOf(certificate_bio), TextOf(key_bio)};
}

// Asks over TLS, with a certificate of its own unless `pair` is null; "" where the server ends it.
std::string Ask(uint16_t port, const std::string& headers, const Pair* pair) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  if (pair != nullptr) {
    BIO* certificate_bio = BIO_new_mem_buf(pair->certificate.data(), -1);
    BIO* key_bio = BIO_new_mem_buf(pair->key.data(), -1);
    X509* certificate = PEM_read_bio_X509(certificate_bio, nullptr, nullptr, nullptr);
    EVP_PKEY* key = PEM_read_bio_PrivateKey(key_bio, nullptr, nullptr, nullptr);
    SSL_CTX_use_certificate(context.get(), certificate);
    SSL_CTX_use_PrivateKey(context.get(), key);
    X509_free(certificate);
    EVP_PKEY_free(key);
    BIO_free(certificate_bio);
    BIO_free(key_bio);
  }
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), SSL_free);
  Client client(port);
  SSL_set_fd(ssl.get(), client.fd());
  if (SSL_connect(ssl.get()) != 1) return "";
  const std::string request =
      "GET /secret HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers + "\r\n";
  SSL_write(ssl.get(), request.data(), static_cast<int>(request.size()));
  std::string answer;
  char bytes[4096];
  int got = 0;
  while ((got = SSL_read(ssl.get(), bytes, sizeof(bytes))) > 0) {
    answer.append(bytes, static_cast<size_t>(got));
  }
  return answer;
}

std::unique_ptr<Server> Start(ServerOptions options) {
  Router router;
  router.Add({.method = "GET",
              .pattern = "/secret",
              .handler = [](const Request& request, const Reply& reply) {
                reply.Send({.body = request.secure ? "by TLS" : "in clear"});
              }});
  auto started = Server::Start(std::move(options), std::move(router));
  REQUIRE(started.ok());
  return *std::move(started);
}

TEST_CASE("a server with a certificate speaks TLS and nothing else") {
  const Pair pair = SelfSigned();
  const auto server = Start({.tls = {.certificate = pair.certificate, .key = pair.key}});
  CHECK(server->url() == "https://127.0.0.1:" + std::to_string(server->port()));
  CHECK(Ask(server->port(), "", nullptr).ends_with("by TLS"));
  Client plain(server->port());
  plain.Send("GET /secret HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK(plain.Read().find("by TLS") == std::string::npos);
  CHECK(Ask(server->port(), "", nullptr).ends_with("by TLS"));
}

TEST_CASE("a client that shows a certificate of the authority needs no token") {
  const Pair pair = SelfSigned(), stranger = SelfSigned();
  const auto server = Start({.address = "0.0.0.0",
                             .access = {.trust = Trust::kTokenOnly},
                             .tls = {.certificate = pair.certificate,
                                     .key = pair.key,
                                     .client_authority = pair.certificate}});
  CHECK(StatusOf(Ask(server->port(), "", &pair)) == 200);
  CHECK(StatusOf(Ask(server->port(), "", nullptr)) == 401);
  CHECK(StatusOf(Ask(server->port(), "", &stranger)) == 0);
}

}  // namespace
}  // namespace sheaf::http
