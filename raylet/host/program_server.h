// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Gives the programs of this node's drivers to other nodes, block by block.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/ids.h"
#include "base/unique_fd.h"
#include "proto/object.pb.h"
#include "raylet/host/program_file.h"
#include "rpc/links.h"

namespace sheaf {

class ProgramServer {
 public:
  using Respond = std::function<void(absl::StatusOr<Block>)>;
  // `program_of` gives a descriptor of the program of a driver; kNotFound: no job of that driver
  // is here. It is called on `files`, as all reading happens there; both outlive this object, and
  // `files` has stopped before it goes.
  ProgramServer(Executor& files, std::function<absl::StatusOr<UniqueFd>(ProcessId)> program_of)
      : files_(files), program_of_(std::move(program_of)) {}

  // Whether a request is for a program; ObjectServer answers the others.
  static bool IsFor(const proto::BlockRequest& request) { return request.program_of() != 0; }
  // Answers once, on `files`, with a head that names outcome, size and digest. The digest is left
  // out if the asking node has the same file (`request.file`). Any thread.
  void OnFetch(proto::BlockRequest request, Respond respond);

 private:
  absl::StatusOr<Block> Answer(const proto::BlockRequest& request);

  Executor& files_;
  const std::function<absl::StatusOr<UniqueFd>(ProcessId)> program_of_;
  // On `files_`. Digests by the identity of the file, of those asked for lately.
  std::map<std::string, std::string> digests_;
};

}  // namespace sheaf
