// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// HMAC-SHA256, SHA256 and secret random bytes, from OpenSSL.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace sheaf {

using Digest = std::array<char, 32>;

inline std::string_view AsView(const Digest& digest) { return {digest.data(), digest.size()}; }

// Of the parts, each preceded by its length, so that no two lists of parts are the same bytes.
Digest HmacSha256(std::string_view key, std::initializer_list<std::string_view> parts);
Digest Sha256(std::string_view bytes);
// In a time that does not depend on where they differ.
bool SameSecret(std::string_view a, std::string_view b);
// Fit for nonces and keys.
Digest SecretBytes();

}  // namespace sheaf
