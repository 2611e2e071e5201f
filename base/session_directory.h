// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The directory of one run of a node, BASE/session-<start>-<pid>, mode 0700 (start: as
// 20260131-235959, UTC; "-2" and so on behind it where the name is taken). In it:
//
//   raylet.sock  the socket that local processes attach to
//   token        256 bits in hexadecimal, mode 0600
//   lock         held by the node while it lives
//   keep         exists if the directory outlives the node
//   gcs.db       of the GCS, where it runs here; and gcs.sock, where it is asked for copies
//   node         the number of the node
//   logs/        what the node and its workers print
//   spill/       objects that found no room in memory
//   programs/    of drivers on other nodes, each under the digest of its bytes
//
// BASE/latest links to the one that was ready last.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace sheaf {

inline constexpr char kRayletSocketName[] = "raylet.sock";  // In each session directory.

// The session directory that an address names: for "latest" and "auto" the one in `base` that was
// ready last, for the path of a raylet's socket the one that holds it, else the path as it is
// given.
std::string DirectoryOf(const std::string& address, const std::string& base);
// Whether `address` is the HOST:PORT of a cluster's head rather than a node of this machine.
bool NamesHead(const std::string& address);
// The raylet's socket there.
std::string SocketOf(const std::string& address, const std::string& base);

// A session that is there, whether its node runs or has ended.
struct SessionInfo {
  std::string path;
  bool runs = false;
  bool kept = false;          // It outlives its node.
  bool has_database = false;  // Of a head: the state of a cluster.
  int64_t last_start_unix_ns = 0;
};

class SessionDirectory {
 public:
  // Makes `base` (0700) where it is missing, and a new session in it. `keep`: it stays when the
  // node ends, without socket and spilled objects. `start_time_unix_s` names it, with the process's
  // number. kPermissionDenied: `base` is somebody else's, or open to others. kFailedPrecondition:
  // on a network file system, where neither sockets nor the GCS's database work. Others: the file
  // system's.
  static absl::StatusOr<std::unique_ptr<SessionDirectory>> Make(const std::string& base,
                                                                int64_t start_time_unix_s,
                                                                bool keep);
  // Goes on with the session at `path`, which was made to stay and whose node has ended: the GCS's
  // database and the logs are there, socket, token and spilled objects are new. kNotFound: no such
  // session. kFailedPrecondition: its node lives. Others: as Make.
  static absl::StatusOr<std::unique_ptr<SessionDirectory>> Resume(const std::string& path);
  // Removes what does not stay, and the link if it still points here.
  ~SessionDirectory();
  SessionDirectory(const SessionDirectory&) = delete;
  SessionDirectory& operator=(const SessionDirectory&) = delete;

  // Lets BASE/latest point here. For when the node is ready.
  void PublishLatest() const;

  const std::string& path() const { return path_; }
  std::string name() const { return path_.substr(path_.rfind('/') + 1); }
  std::string socket_path() const { return path_ + "/" + kRayletSocketName; }
  std::string log_directory() const { return path_ + "/logs"; }
  std::string spill_directory() const { return path_ + "/spill"; }
  std::string program_directory() const { return path_ + "/programs"; }
  // The number of the node that ran here last; 0: none did.
  uint32_t ReadNode() const;
  // Best effort: without it a resumed session takes a while to know that its last node is dead.
  void WriteNode(uint32_t number) const;
  std::string database() const { return path_ + "/gcs.db"; }
  // kDataLoss: somebody removed or replaced the directory. To be asked about once a second: what is
  // written after that is in files without a name.
  absl::Status CheckThere() const;
  const std::string& token() const { return token_; }

  // All in `base`, the one that was started last first.
  static std::vector<SessionInfo> List(const std::string& base);
  // The one that was started last, of a head or of another node, and whose node has ended; empty if
  // there is none. kFailedPrecondition: the latest head runs.
  static absl::StatusOr<std::string> FindLatest(const std::string& base, bool head);
  // Removes one, with the database. kNotFound: no session. kFailedPrecondition: its node runs.
  static absl::Status Remove(const std::string& path);
  // Removes what nodes that were killed left in `base`: their sessions, or what does not stay of
  // them; of those that stay and hold no database, all but the `keep_newest` that were started
  // last. A database goes by Remove alone. Returns the number of sessions changed. Sessions of
  // living nodes are untouched.
  static int RemoveDead(const std::string& base, int keep_newest);

 private:
  SessionDirectory(std::string base, std::string path, bool keep)
      : base_(std::move(base)), path_(std::move(path)), keep_(keep) {}

  const std::string base_;
  const std::string path_;
  const bool keep_;
  UniqueFd lock_;
  UniqueFd base_lock_;
  std::string token_;
};

}  // namespace sheaf
