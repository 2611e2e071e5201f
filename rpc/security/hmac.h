// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// HMAC-SHA256, SHA256 and secret random bytes, from OpenSSL.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX.

namespace sheaf {

using Digest = std::array<char, 32>;

inline std::string_view AsView(const Digest& digest) { return {digest.data(), digest.size()}; }

// Of the parts, each preceded by its length, so that no two lists of parts are the same bytes.
Digest HmacSha256(std::string_view key, std::initializer_list<std::string_view> parts);
Digest Sha256(std::string_view bytes);
// SHA256 of bytes that come in pieces. Finish ends it.
class RunningSha256 {
 public:
  RunningSha256();
  ~RunningSha256();
  RunningSha256(const RunningSha256&) = delete;
  RunningSha256& operator=(const RunningSha256&) = delete;
  void Add(std::string_view bytes);
  Digest Finish();

 private:
  evp_md_ctx_st* context_;
};
// Fit for nonces and keys.
Digest SecretBytes();

}  // namespace sheaf
