// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/describe_death.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace sheaf {

std::string DescribeDeath(const proto::Death& death) {
  std::string words;
  switch (death.cause()) {
    case proto::Death::EXITED:
      words = absl::StrCat("exited with status ", death.code());
      break;
    case proto::Death::SIGNALLED:
      words =
          absl::StrCat("was killed by signal ", death.code(), " (", strsignal(death.code()), ")");
      break;
    case proto::Death::OUT_OF_MEMORY:
      words = "was killed because the node ran out of memory";
      break;
    case proto::Death::KILLED:
      words = "was ended on request";
      break;
    case proto::Death::LEFT:
      words = "has left";
      break;
    case proto::Death::NODE_DIED:
      words = "was on a node that died";
      break;
    case proto::Death::START_FAILED:
      words = "did not start";
      break;
    default:
      words = "died";
      break;
  }
  absl::string_view more = death.message();
  const absl::string_view known = absl::StripPrefix(words, "was ");
  if (absl::StartsWith(more, known)) {  // The launcher says it, too.
    more.remove_prefix(known.size());
  } else if (!more.empty()) {
    absl::StrAppend(&words, ": ");
  }
  absl::StrAppend(&words, more);
  if (death.last_lines_size() != 0) {
    absl::StrAppend(&words, "\nIts last output:\n  ", absl::StrJoin(death.last_lines(), "\n  "));
  }
  return words;
}

}  // namespace sheaf
