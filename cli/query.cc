// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/query.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/session_directory.h"
#include "base/status_macros.h"
#include "base/unix_socket.h"
#include "shm/attach_client.h"

namespace sheaf::cli {
namespace {

namespace fs = std::filesystem;

constexpr Nanos kConnectTimeout = 2 * kSecond;
constexpr size_t kMostIdle = 16;

// Sessions below `directory`, newest first; the symbolic link `latest` only repeats one of them.
std::vector<std::string> SessionsIn(const std::string& directory) {
  std::vector<std::pair<fs::file_time_type, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    const fs::path socket = entry->path() / kRayletSocketName;
    if (entry->is_symlink(ignored) || !fs::exists(socket, ignored)) continue;
    found.emplace_back(fs::last_write_time(socket, ignored), entry->path().string());
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> sessions;
  for (auto& [time, path] : found) sessions.push_back(std::move(path));
  return sessions;
}

std::string Place(const std::string& address, const Settings& settings) {
  const std::string& wanted = address.empty() ? settings.address : address;
  return wanted.empty() ? settings.base_directory : DirectoryOf(wanted, settings.base_directory);
}

absl::Status NoNode(const std::string& place) {
  return absl::NotFoundError(
      absl::StrCat("no node runs in ", place, "; start one with: sheaf start --head"));
}

absl::StatusOr<proto::StateAnswer> AskOver(const UnixSocket& socket, const std::string& session,
                                           const proto::StateQuery& query, Nanos timeout) {
  SHEAF_ASSIGN_OR_RETURN(const std::string bytes,
                         AskRaylet(socket, query.SerializeAsString(), timeout));
  proto::StateAnswer answer;
  if (!answer.ParseFromString(bytes)) {
    return absl::InternalError(
        absl::StrCat("the node in ", session, " gave an answer that cannot be read"));
  }
  return answer;
}

}  // namespace

absl::StatusOr<std::vector<RunningNode>> FindNodes(const std::string& address) {
  SHEAF_ASSIGN_OR_RETURN(const Settings settings, LoadSettings());
  const std::string place = Place(address, settings);
  std::error_code ignored;
  const std::vector<std::string> sessions = fs::exists(fs::path(place) / kRayletSocketName, ignored)
                                                ? std::vector<std::string>{place}
                                                : SessionsIn(place);
  std::vector<RunningNode> nodes;
  for (const std::string& session : sessions) {
    const absl::StatusOr<UnixSocket> socket =
        UnixSocket::Connect(SocketOf(session, settings.base_directory), kConnectTimeout);
    if (!socket.ok()) continue;  // A node that died left its directory.
    const absl::StatusOr<PeerCredentials> peer = socket->Peer();
    if (peer.ok()) nodes.push_back({session, static_cast<int>(peer->pid)});
  }
  return nodes;
}

NodeNumber NumberOf(const RunningNode& node) {
  std::ifstream file(node.session + "/node");
  NodeNumber number = 0;
  return file >> number ? number : 0;
}

absl::StatusOr<RunningNode> FindNode(const QueryOptions& options) {
  SHEAF_ASSIGN_OR_RETURN(const Settings settings, LoadSettings());
  SHEAF_ASSIGN_OR_RETURN(std::vector<RunningNode> nodes, FindNodes(options.address));
  if (nodes.empty()) return NoNode(Place(options.address, settings));
  return std::move(nodes[0]);
}

absl::StatusOr<proto::StateAnswer> Ask(const QueryOptions& options,
                                       const proto::StateQuery& query) {
  SHEAF_ASSIGN_OR_RETURN(const Settings settings, LoadSettings());
  SHEAF_ASSIGN_OR_RETURN(const RunningNode node, FindNode(options));
  SHEAF_ASSIGN_OR_RETURN(
      const UnixSocket socket,
      AttachTool(SocketOf(node.session, settings.base_directory), options.timeout));
  return AskOver(socket, node.session, query, options.timeout);
}

std::optional<UnixSocket> KeptNode::Take() {
  const MutexLock lock(mutex_);
  if (idle_.empty()) return std::nullopt;
  UnixSocket socket = std::move(idle_.back());
  idle_.pop_back();
  return socket;
}

absl::StatusOr<proto::StateAnswer> KeptNode::Ask(const proto::StateQuery& query, Nanos timeout) {
  const Nanos begin = MonotonicNow();
  // An order is not given twice, so none is given over a connection that may have ended.
  const bool question =
      query.what() != proto::StateQuery::KEY_VALUE && query.what() != proto::StateQuery::DRAIN;
  std::optional<UnixSocket> socket;
  if (question) socket = Take();
  const bool kept = socket.has_value();
  if (!kept) {
    SHEAF_ASSIGN_OR_RETURN(const Settings settings, LoadSettings());
    absl::StatusOr<UnixSocket> fresh =
        AttachTool(SocketOf(session_, settings.base_directory), timeout);
    if (!fresh.ok()) return fresh.status();
    socket = *std::move(fresh);
  }
  absl::StatusOr<proto::StateAnswer> answer = AskOver(*socket, session_, query, timeout);
  if (answer.ok()) {
    const MutexLock lock(mutex_);
    if (idle_.size() < kMostIdle) idle_.push_back(*std::move(socket));
    return answer;
  }
  // A late answer would be taken for that of the next question, so this connection is not kept.
  const Nanos left = timeout - (MonotonicNow() - begin);
  if (!kept || left <= 0 || !absl::IsUnavailable(answer.status())) return answer;
  return Ask(query, left);
}

int Complain(const absl::Status& status) {
  std::fprintf(stderr, "sheaf: %s\n", std::string(status.message()).c_str());
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kDone;
    case absl::StatusCode::kInvalidArgument:
      return kUsage;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnavailable:
      return kNoNode;
    case absl::StatusCode::kDeadlineExceeded:
      return kTimedOut;
    default:
      return kFailed;
  }
}

}  // namespace sheaf::cli
