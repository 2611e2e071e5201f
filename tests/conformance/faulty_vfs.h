// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A file layer for SQLite that fails on request: a disk that is full, an fsync that fails once, a
// machine that loses power and with it every page that was not synced. Registered under its own
// name beside the system's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace sheaf {

class FaultyVfs {
 public:
  FaultyVfs();   // One at a time.
  ~FaultyVfs();  // All databases opened through it are closed or abandoned.
  static constexpr char kName[] = "sheaf-faulty";

  // Writes that make a file grow fail with SQLITE_FULL once `bytes` more have been added; < 0:
  // never.
  void FillDiskAfter(int64_t bytes);
  // The sync number `count` from now on (1: the next) fails; nothing since the sync before it is on
  // disk.
  void FailSync(int count);
  // What the files would hold if the power failed now is written into them.
  void LosePower();
  int syncs() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace sheaf
