// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What `ps` and /proc/PID/cmdline show of this process.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sheaf::python {

// Writes over the arguments that the process was started with, whose memory is all that there is for
// it. One thread at a time.
class ProcessTitle {
 public:
  ProcessTitle();
  // "ray::NAME", cut where the memory ends. Nothing happens where the kernel does not say where the
  // memory is.
  void Show(std::string_view name);

 private:
  char* begin_ = nullptr;
  size_t size_ = 0;
  std::string shown_;
};

}  // namespace sheaf::python
