// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/program_server.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr uint64_t kMostBytes = uint64_t{16} << 20;  // Of one answer.
constexpr size_t kMostDigests = 64;

}  // namespace

void ProgramServer::OnFetch(proto::BlockRequest request, Respond respond) {
  files_.Post([this, request = std::move(request), respond = std::move(respond)] {
    respond(Answer(request));
  });
}

absl::StatusOr<Block> ProgramServer::Answer(const proto::BlockRequest& request) {
  if (request.length() > kMostBytes)
    return absl::InvalidArgumentError("more of a program than one answer holds");
  proto::BlockHead head;
  const absl::StatusOr<UniqueFd> program = program_of_(ProcessId::Unpack(request.program_of()));
  if (!program.ok()) {
    head.set_outcome(proto::BlockHead::NOT_FOUND);
    return Block{.head = head.SerializeAsString(), .bytes = {}, .hold = nullptr};
  }
  SHEAF_ASSIGN_OR_RETURN(const ProgramFile file, ExamineProgram(program->get()));
  head.set_outcome(proto::BlockHead::FOUND);
  head.set_size_bytes(file.size_bytes);
  if (!file.identity.empty() && request.file() == file.identity) {
    head.set_same_file(true);
    return Block{.head = head.SerializeAsString(), .bytes = {}, .hold = nullptr};
  }
  auto digest = digests_.find(file.identity);
  if (digest == digests_.end()) {
    SHEAF_ASSIGN_OR_RETURN(std::string fresh, DigestOfProgram(program->get(), file.size_bytes));
    if (digests_.size() >= kMostDigests) digests_.clear();
    digest = digests_.insert_or_assign(file.identity, std::move(fresh)).first;
  }
  head.set_sha256(digest->second);
  if (file.identity.empty()) digests_.clear();  // Nobody can tell it from another one.
  SHEAF_ASSIGN_OR_RETURN(std::string read,
                         ReadProgram(program->get(), request.offset(), request.length()));
  const auto bytes = std::make_shared<const std::string>(std::move(read));
  return Block{
      .head = head.SerializeAsString(), .bytes = {bytes->data(), bytes->size()}, .hold = bytes};
}

}  // namespace sheaf
