// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/gcs_control.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace sheaf::cli {
namespace {

// A question is "backup PATH", an answer "CODE TEXT", CODE that of an absl::Status.
constexpr char kBackup[] = "backup ";
constexpr Nanos kSendTimeout = kSecond;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

absl::StatusOr<std::unique_ptr<GcsControl>> GcsControl::Start(const std::string& socket_path,
                                                              Backup backup) {
  std::unique_ptr<GcsControl> control(new GcsControl(std::move(backup)));
  SHEAF_ASSIGN_OR_RETURN(UnixListener listener, UnixListener::Listen(socket_path));
  control->listener_.emplace(std::move(listener));
  SHEAF_ASSIGN_OR_RETURN(control->loop_, EventLoop::Start("gcs-control"));
  absl::Status watched;
  control->loop_->Run([&] {
    watched = control->loop_->Watch(control->listener_->fd(), EPOLLIN,
                                    [made = control.get()](uint32_t) { made->Accept(); });
  });
  if (!watched.ok()) return watched;
  return control;
}

GcsControl::~GcsControl() {
  if (loop_ != nullptr) loop_->Stop();
}

void GcsControl::Accept() {
  absl::StatusOr<UnixSocket> socket = listener_->Accept(0);
  if (!socket.ok()) return;
  const absl::StatusOr<PeerCredentials> peer = socket->Peer();
  if (!peer.ok() || peer->uid != geteuid()) return;
  auto asker = std::make_shared<UnixSocket>(*std::move(socket));
  (void)loop_->Watch(asker->fd(), EPOLLIN, [this, asker](uint32_t) { OnMessage(asker); });
}

// One question a connection. The answer may come from any thread, also when this object is gone.
void GcsControl::OnMessage(const std::shared_ptr<UnixSocket>& asker) {
  const absl::StatusOr<SocketMessage> message = asker->Receive(0);
  loop_->Unwatch(asker->fd());
  const auto answer = [asker](const absl::Status& status) {
    (void)asker->Send(absl::StrCat(static_cast<int>(status.code()), " ", status.message()), {},
                      kSendTimeout);
  };
  absl::string_view text = message.ok() ? View(message->bytes) : "";
  if (!absl::ConsumePrefix(&text, kBackup) || !absl::StartsWith(text, "/")) {
    return answer(absl::InvalidArgumentError("the GCS does not know this question"));
  }
  const std::string path(text);
  Log(LogLevel::kInfo, "copying the state of the cluster to ", path);
  backup_(path, [answer, path](const absl::Status& status) {
    Log(status.ok() ? LogLevel::kInfo : LogLevel::kError, "the copy of the state in ", path, ": ",
        status.ToString());
    answer(status);
  });
}

absl::Status AskForBackup(const std::string& socket_path, const std::string& file, Nanos timeout) {
  SHEAF_ASSIGN_OR_RETURN(const UnixSocket socket, UnixSocket::Connect(socket_path, kSendTimeout));
  SHEAF_RETURN_IF_ERROR(socket.Send(absl::StrCat(kBackup, file), {}, kSendTimeout));
  const absl::StatusOr<SocketMessage> answer = socket.Receive(timeout);
  if (absl::IsDeadlineExceeded(answer.status())) {
    return absl::DeadlineExceededError(
        absl::StrCat("the copy is not ready yet; the head goes on with it, and ", file,
                     " is there when it is whole"));
  }
  if (!answer.ok()) return answer.status();
  const size_t space = answer->bytes.find(' ');
  int code = 0;
  if (space == std::string::npos || !absl::SimpleAtoi(answer->bytes.substr(0, space), &code)) {
    return absl::InternalError("the GCS gave an answer that cannot be read");
  }
  return absl::Status(static_cast<absl::StatusCode>(code), answer->bytes.substr(space + 1));
}

}  // namespace sheaf::cli
