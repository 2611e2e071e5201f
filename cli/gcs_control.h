// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the operator asks of a living GCS, over a socket of its own in the session directory, since
// it may take longer than a question to the raylet: `sheaf gcs backup`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/unix_socket.h"
#include "raylet/host/event_loop.h"

namespace sheaf::cli {

inline constexpr char kGcsSocketName[] = "gcs.sock";  // In the session directory of a head.

class GcsControl {
 public:
  // Writes a copy of the database at `path`; called on a thread of this.
  using Backup = std::function<void(std::string path, std::function<void(absl::Status)> done)>;
  // Listens at `socket_path`; the errors of UnixListener::Listen.
  static absl::StatusOr<std::unique_ptr<GcsControl>> Start(const std::string& socket_path,
                                                           Backup backup);
  ~GcsControl();

 private:
  explicit GcsControl(Backup backup) : backup_(std::move(backup)) {}
  void Accept();
  void OnMessage(const std::shared_ptr<UnixSocket>& asker);

  const Backup backup_;
  std::optional<UnixListener> listener_;
  std::unique_ptr<EventLoop> loop_;
};

// Asks the GCS behind `socket_path` for a copy of its database at `file`, an absolute path.
// kNotFound, kUnavailable: none listens there. kDeadlineExceeded: not within `timeout`. Others:
// what it answers.
absl::Status AskForBackup(const std::string& socket_path, const std::string& file, Nanos timeout);

}  // namespace sheaf::cli
