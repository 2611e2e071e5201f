// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/get.h"

#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "http/client.h"

namespace sheaf::http {

absl::StatusOr<std::string> Get(const std::string& url, Nanos timeout) {
  SHEAF_ASSIGN_OR_RETURN(Url where, ParseUrl(url));
  SHEAF_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Make(std::move(where)));
  SHEAF_ASSIGN_OR_RETURN(Answer answer, client->Ask({}, timeout));
  if (answer.status == 200) return std::move(answer.body);
  return absl::UnavailableError(absl::StrCat("it answers ", answer.status, ": ",
                                             absl::CHexEscape(answer.body.substr(0, 200))));
}

}  // namespace sheaf::http
