// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/security/hmac.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/check.h"

namespace sheaf {

Digest HmacSha256(std::string_view key, std::initializer_list<std::string_view> parts) {
  std::string bytes;
  for (std::string_view part : parts) {
    const uint64_t size = part.size();
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size).append(part);
  }
  Digest out;
  unsigned int size = 0;
  const bool done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                         reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                         reinterpret_cast<unsigned char*>(out.data()), &size) != nullptr;
  SHEAF_CHECK(done && size == out.size(), "OpenSSL has no HMAC-SHA256");
  return out;
}

Digest Sha256(std::string_view bytes) {
  Digest out;
  const bool done =
      EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(out.data()), nullptr,
                 EVP_sha256(), nullptr) == 1;
  SHEAF_CHECK(done, "OpenSSL has no SHA256");
  return out;
}

RunningSha256::RunningSha256() : context_(EVP_MD_CTX_new()) {
  SHEAF_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1,
              "OpenSSL has no SHA256");
}

RunningSha256::~RunningSha256() { EVP_MD_CTX_free(context_); }

void RunningSha256::Add(std::string_view bytes) {
  const bool done = EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1;
  SHEAF_CHECK(done, "SHA256 of a running sum failed");
}

Digest RunningSha256::Finish() {
  Digest out;
  unsigned int size = 0;
  const bool done =
      EVP_DigestFinal_ex(context_, reinterpret_cast<unsigned char*>(out.data()), &size) == 1;
  SHEAF_CHECK(done && size == out.size(), "SHA256 of a running sum failed");
  return out;
}

Digest SecretBytes() {
  Digest out;
  const bool done =
      RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(out.size())) == 1;
  SHEAF_CHECK(done, "OpenSSL has no randomness");
  return out;
}

}  // namespace sheaf
