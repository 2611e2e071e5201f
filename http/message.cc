// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/message.h"

#include <unistd.h>

#include <boost/beast/http/status.hpp>

namespace sheaf::http {

std::optional<std::string_view> Find(const Pairs& pairs, std::string_view name) {
  for (const auto& [key, value] : pairs) {
    if (key == name) return value;
  }
  return std::nullopt;
}

TemporaryFile::~TemporaryFile() { unlink(path_.c_str()); }

std::string_view Request::Header(std::string_view lower_case_name) const {
  return Find(headers, lower_case_name).value_or("");
}

std::string_view Request::Capture(std::string_view name) const {
  return Find(captures, name).value_or("");
}

Response PlainText(int status, std::string_view sentence) {
  return {.status = status,
          .body = std::string(sentence) + "\n",
          .content_type = "text/plain; charset=utf-8"};
}

std::string_view ReasonOf(int status) {
  namespace beast = boost::beast::http;
  return beast::obsolete_reason(static_cast<beast::status>(status));
}

}  // namespace sheaf::http
