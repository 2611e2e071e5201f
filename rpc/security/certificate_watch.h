// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Looks after the files of --tls-dir, which are replaced while a node runs: one by one, all at once
// by a rename of the directory, or by a symbolic link. A set is read once its files stay as they
// are from one look to the next, so that half of a set is none.
#pragma once

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/executor.h"
#include "rpc/security/credentials.h"

namespace sheaf {

class CertificateWatch {
 public:
  // Called on the watch's thread with each new set that is whole and good.
  using OnNew = std::function<absl::Status(const Credentials& next)>;
  // `in_use`: what was read from `directory` last; its peer_name counts for new sets too. A look
  // every `period`: a new set is handed on between one and three of these after its last file.
  CertificateWatch(std::string directory, Credentials in_use, OnNew on_new, Nanos period = kSecond);
  // No call runs, or will, when it returns.
  ~CertificateWatch() { thread_->Stop(); }

 private:
  // Of each file what changes when another takes its place, or it is written.
  struct Mark {
    uint64_t device = 0, inode = 0, size = 0;
    int64_t changed = 0;  // Nanoseconds.
    bool operator==(const Mark&) const = default;
  };
  using Marks = std::array<Mark, 3>;
  Marks Look() const;
  void Tick();

  const std::string directory_;
  const OnNew on_new_;
  Credentials in_use_;
  Marks seen_{};                            // Of the last look.
  Marks read_{};                            // Of the last set that was read, good or not.
  std::unique_ptr<ThreadExecutor> thread_;  // The rest is its own.
};

}  // namespace sheaf
