// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/sessions.h"

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/session_directory.h"
#include "base/text/json.h"
#include "cli/query.h"

namespace sheaf::cli {
namespace {

uint64_t DatabaseBytes(const std::string& session) {
  uint64_t bytes = 0;
  for (const char* file : {"/gcs.db", "/gcs.db-wal"}) {
    std::error_code error;
    const uint64_t size = std::filesystem::file_size(session + file, error);
    if (!error) bytes += size;
  }
  return bytes;
}

}  // namespace

int RunSessions(const SessionsOptions& options, bool json) {
  std::string directory = options.directory;
  if (directory.empty()) {
    const absl::StatusOr<Settings> settings = LoadSettings();
    if (!settings.ok()) return Complain(settings.status());
    directory = settings->base_directory;
  }
  Listing table{{{"SESSION", "session"},
                 {"STATE", "state"},
                 {"KIND", "kind"},
                 {"STARTED", "started"},
                 {"CLUSTER STATE", "database_bytes"}},
                {}};
  for (const SessionInfo& session : SessionDirectory::List(directory)) {
    table.rows.push_back({TextCell(session.path), TextCell(session.runs ? "RUNNING" : "ENDED"),
                          TextCell(session.has_database ? "head"
                                   : session.kept       ? "node"
                                                        : "program"),
                          TimeCell(session.last_start_unix_ns / kSecond),
                          BytesCell(DatabaseBytes(session.path))});
  }
  if (json) {
    std::printf("%s\n", JsonObject().Add("sessions", table.Json()).Done().c_str());
  } else if (table.rows.empty()) {
    std::printf("No node has left anything in %s.\n", Printable(directory).c_str());
  } else {
    std::fputs(table.Text().c_str(), stdout);
  }
  return kDone;
}

int RunRemoveSession(const SessionsOptions& options) {
  if (absl::Status removed = SessionDirectory::Remove(options.session); !removed.ok()) {
    Complain(removed);
    return absl::IsNotFound(removed) ? kNotThere : kFailed;
  }
  std::printf("Removed %s, with all that was in it.\n", Printable(options.session).c_str());
  return kDone;
}

}  // namespace sheaf::cli
