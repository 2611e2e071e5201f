// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A file of lines that a log shipper reads while it is written: it grows by whole lines only, and
// when it has grown too long it gets another name, under which the shipper has it open, and a new
// one is begun. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/unique_fd.h"

namespace sheaf {

struct EventFileOptions {
  std::string path;
  int64_t max_bytes = 64 << 20;
  int backups = 4;  // PATH.1 is the newest.
};

class EventFile {
 public:
  explicit EventFile(EventFileOptions options) : options_(std::move(options)) {}

  // All of `lines`, each with its end, or nothing: the status says why (kResourceExhausted: the disk
  // is full), and that the same lines may be tried again.
  absl::Status Append(std::string_view lines);

 private:
  absl::Status Open();
  void Rotate();

  const EventFileOptions options_;
  UniqueFd file_;
  int64_t bytes_ = 0;
};

}  // namespace sheaf
