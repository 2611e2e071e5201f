// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "http/certificate_for_test.h"
#include "http/client_for_test.h"
#include "http/server.h"

namespace sheaf::http {
namespace {

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
