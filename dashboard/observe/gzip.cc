// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/observe/gzip.h"

#include <zlib.h>

#include <algorithm>

#include "base/check.h"

namespace sheaf::dashboard {

std::string Gzip(std::string_view bytes) {
  constexpr int kGzipWindow = 15 + 16;  // The largest window, and a head of gzip.
  constexpr size_t kPart = 1 << 30;     // zlib counts in 32 bits.
  z_stream stream{};
  SHEAF_CHECK(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8,
                           Z_DEFAULT_STRATEGY) == Z_OK,
              "no memory to compress in");
  std::string out;
  char buffer[64 * 1024];
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    if (stream.avail_in == 0) {
      const std::string_view part = bytes.substr(0, kPart);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
      stream.avail_in = static_cast<uInt>(part.size());
      bytes.remove_prefix(part.size());
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer);
    stream.avail_out = sizeof(buffer);
    state = deflate(&stream, bytes.empty() ? Z_FINISH : Z_NO_FLUSH);
    out.append(buffer, sizeof(buffer) - stream.avail_out);
  }
  deflateEnd(&stream);
  return out;
}

}  // namespace sheaf::dashboard
