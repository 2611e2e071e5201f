// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/net_publication.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "collective/process_identity.h"

namespace sheaf {
namespace {

constexpr char kVersion[] = "sheaf-collective-net-1 ";

}  // namespace

std::string EncodeNetPublication(const NetPublication& publication) {
  return absl::StrCat(kVersion, publication.pid, " ", publication.node, " ", publication.host, " ",
                      publication.port, " ", publication.challenge[0], " ",
                      publication.challenge[1], " ",
                      absl::StrCat(publication.answer[0], " ", publication.answer[1], " ",
                                   publication.epoch, " ", publication.world_size));
}

absl::StatusOr<NetPublication> DecodeNetPublication(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ' ');
  NetPublication out;
  if (!IsNetPublication(text) || parts.size() != 11 || !absl::SimpleAtoi(parts[1], &out.pid) ||
      !absl::SimpleAtoi(parts[4], &out.port) || !absl::SimpleAtoi(parts[5], &out.challenge[0]) ||
      !absl::SimpleAtoi(parts[6], &out.challenge[1]) ||
      !absl::SimpleAtoi(parts[7], &out.answer[0]) || !absl::SimpleAtoi(parts[8], &out.answer[1]) ||
      !absl::SimpleAtoi(parts[9], &out.epoch) || !absl::SimpleAtoi(parts[10], &out.world_size) ||
      out.port <= 0 || out.port > 65535) {
    return absl::InvalidArgumentError("it published what this version of Sheaf cannot read");
  }
  out.node = std::string(parts[2]);
  out.host = std::string(parts[3]);
  return out;
}

bool IsNetPublication(absl::string_view text) { return absl::StartsWith(text, kVersion); }
bool IsShmPublication(absl::string_view text) {
  return absl::StartsWith(text, "sheaf-collective-1 ");
}

std::string NodeOf(const CommunicatorOptions& options) {
  const std::string machine = OwnIdentity().machine;
  return options.node.empty() ? machine : absl::StrCat(machine, "/", options.node);
}

}  // namespace sheaf
