// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/json.h"

#include <boost/json/src.hpp>  // The library itself, in this file alone.

#include "absl/strings/str_cat.h"

namespace sheaf::http {

absl::StatusOr<boost::json::value> ParseJson(std::string_view text) {
  if (text.size() > kMaxJsonBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the JSON has ", text.size(), " bytes; at most ", kMaxJsonBytes, " are read"));
  }
  boost::json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  boost::json::parser parser({}, options);
  boost::system::error_code error;
  const size_t read = parser.write(text.data(), text.size(), error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("not JSON at byte ", read, ": ", error.message()));
  }
  return parser.release();
}

}  // namespace sheaf::http
