// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/gcs_state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <future>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/executor.h"
#include "base/session_directory.h"
#include "base/status_macros.h"
#include "base/text/json.h"
#include "base/unique_fd.h"
#include "cli/gcs_control.h"
#include "dashboard/tables/cells.h"
#include "gcs/row_key.h"
#include "gcs/storage/sqlite_storage.h"

namespace sheaf::cli {
namespace {

// Nodes and jobs that began after the copy was made may live: their numbers are used up.
constexpr uint32_t kNumbersSkipped = 1 << 20;

absl::Status CopyDurably(const std::string& from, const std::string& to) {
  std::error_code error;
  std::filesystem::copy_file(from, to, error);
  const UniqueFd file(open(to.c_str(), O_RDWR | O_CLOEXEC));
  if (!error && file.valid() && fchmod(file.get(), 0600) == 0 && fsync(file.get()) == 0) {
    return absl::OkStatus();
  }
  if (!error) error = std::error_code(errno, std::generic_category());
  return absl::UnavailableError(
      absl::StrCat("cannot copy ", from, " to ", to, ": ", error.message()));
}

absl::Status SkipNumbers(const std::string& database) {
  ThreadExecutor completions("gcs-restore");
  SHEAF_ASSIGN_OR_RETURN(const std::unique_ptr<SqliteStorage> storage,
                         SqliteStorage::Open({.path = database}, completions));
  WriteBatch writes;
  size_t rows = 0;
  SHEAF_RETURN_IF_ERROR(
      storage->LoadAll([&](sheaf::Table table, std::string_view key, std::string_view value) {
        ++rows;
        if (table != sheaf::Table::kMeta || (key != "last_node" && key != "last_job")) return;
        const uint32_t last = NumberFromRowKey<uint32_t>(value).value_or(0);
        writes.push_back({table, std::string(key), RowKey(last + kNumbersSkipped)});
      }));
  if (rows == 0) return absl::InvalidArgumentError("there is no state of a cluster in it");
  auto written = std::make_shared<std::promise<absl::Status>>();
  storage->Commit(std::move(writes),
                  [written](absl::Status status) { written->set_value(std::move(status)); });
  return written->get_future().get();
}

// The path of a new session.
absl::StatusOr<std::string> MakeSessionOf(const GcsStateOptions& options) {
  SHEAF_ASSIGN_OR_RETURN(const Settings settings, LoadSettings());
  const std::string& base = options.directory.empty() ? settings.base_directory : options.directory;
  struct stat info;
  if (stat(options.file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::NotFoundError(absl::StrCat("'", options.file, "' is no file"));
  }
  SHEAF_ASSIGN_OR_RETURN(
      std::unique_ptr<SessionDirectory> session,
      SessionDirectory::Make(std::filesystem::absolute(base), UnixNow() / kSecond, true));
  absl::Status made = CopyDurably(options.file, session->database());
  if (made.ok()) made = SkipNumbers(session->database());
  const std::string path = session->path();
  session.reset();
  if (made.ok()) return path;
  SessionDirectory::Remove(path).IgnoreError();
  return absl::Status(made.code(),
                      absl::StrCat("cannot restore ", options.file, ": ", made.message()));
}

}  // namespace

int RunGcsBackup(const GcsStateOptions& options) {
  std::error_code error;
  const std::string file = std::filesystem::absolute(options.file, error).string();
  const absl::StatusOr<std::vector<RunningNode>> nodes = FindNodes(options.query.address);
  if (!nodes.ok()) return Complain(nodes.status());
  for (const RunningNode& node : *nodes) {
    const std::string socket = absl::StrCat(node.session, "/", kGcsSocketName);
    if (!std::filesystem::exists(socket, error)) continue;
    const Nanos begin = MonotonicNow();
    const absl::Status copied = AskForBackup(socket, file, options.query.timeout);
    if (!copied.ok()) {
      Complain(copied);
      return absl::IsDeadlineExceeded(copied) ? kTimedOut : kFailed;
    }
    const uint64_t bytes = std::filesystem::file_size(file, error);
    const double seconds = static_cast<double>(MonotonicNow() - begin) / kSecond;
    if (options.query.json) {
      std::printf("%s\n", JsonObject()
                              .Add("file", JsonString(file))
                              .Add("bytes", JsonNumber(bytes))
                              .Add("seconds", JsonNumber(seconds))
                              .Done()
                              .c_str());
    } else {
      std::printf("The state of the cluster is in %s (%s).\n", Printable(file).c_str(),
                  FormatBytes(bytes).c_str());
    }
    return kDone;
  }
  return Complain(absl::NotFoundError(
      "no head runs here that keeps its state on a disk; say this on the machine of the head"));
}

int RunGcsRestore(const GcsStateOptions& options) {
  const absl::StatusOr<std::string> session = MakeSessionOf(options);
  if (!session.ok()) {
    Complain(session.status());
    return absl::IsNotFound(session.status()) ? kNotThere : kFailed;
  }
  if (options.query.json) {
    std::printf("%s\n", JsonObject().Add("session", JsonString(*session)).Done().c_str());
  } else {
    std::printf("A head goes on with that state with: sheaf start --head --resume=%s\n",
                Printable(*session).c_str());
  }
  return kDone;
}

}  // namespace sheaf::cli
