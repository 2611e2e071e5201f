// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/security/tls_stream.h"

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "rpc/security/tls_directory_for_test.h"

namespace sheaf {
namespace tls_stream_test {

std::string ReadAll(TlsStream& stream, size_t size) {
  std::string bytes(size, '\0');
  for (size_t at = 0; at < size;) {
    const ssize_t got = stream.Read(bytes.data() + at, size - at);
    if (got <= 0) return bytes.substr(0, at);
    at += static_cast<size_t>(got);
  }
  return bytes;
}

bool WriteAll(TlsStream& stream, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = stream.Write(bytes.data(), bytes.size());
    if (put <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

TEST_CASE("a key of TLS is used for so many bytes, and what is under way meanwhile arrives") {
  constexpr uint64_t kOneKey = 100'000;
  const TlsDirectory directory;
  directory.Make("ours");
  const auto context = TlsContext::Make(directory.Load("ours"));
  REQUIRE(context.ok());
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const UniqueFd asking_fd(ends[0]), answering_fd(ends[1]);
  TlsStream asking(**context, asking_fd.get(), "127.0.0.1", kOneKey);
  TlsStream answering(**context, answering_fd.get(), "", kOneKey);
  const std::string there(kOneKey * 3 / 10, 'q'), back(kOneKey, 'a');
  int asked = 0, answered = 0;
  bool met = false;
  std::thread other([&] {
    met = answering.Handshake().value_or(false);
    for (int i = 0; met && i < 10; ++i) {
      asked += ReadAll(answering, there.size()) == there;
      if (!WriteAll(answering, back)) return;
    }
  });
  CHECK(asking.Handshake().value_or(false));
  for (int i = 0; i < 10; ++i) {
    if (!WriteAll(asking, there)) break;
    answered += ReadAll(asking, back.size()) == back;
  }
  other.join();
  CHECK(met);
  CHECK(asked == 10);
  CHECK(answered == 10);
  CHECK(asking.keys() == 1 + 10 * 3 / 12);  // Each write ends a key that is used up.
  CHECK(answering.keys() == 1 + 10);
}

}  // namespace tls_stream_test
}  // namespace sheaf
