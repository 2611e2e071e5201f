// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A request's body on its way to a file. Internal to http/.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "http/message.h"

namespace sheaf::http {

class Spool {
 public:
  // Makes a file in `directory`; nullptr: it cannot.
  std::shared_ptr<const TemporaryFile> Begin(const std::string& directory);
  // Appends. False: the disk does not take them; errno says why.
  bool Write(std::string_view bytes);
  void End() { fd_.Reset(); }

 private:
  UniqueFd fd_;
};

}  // namespace sheaf::http
