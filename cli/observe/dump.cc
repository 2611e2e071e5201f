// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/observe/dump.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/config.h"
#include "base/status_macros.h"
#include "base/text/whole_file.h"
#include "base/unique_fd.h"
#include "base/version.h"
#include "cli/observe/redaction.h"
#include "cli/observe/stack.h"
#include "cli/observe/tar_file.h"
#include "cli/status.h"
#include "dashboard/observe/gzip.h"
#include "dashboard/observe/profile_formats.h"
#include "dashboard/observe/stack_text.h"
#include "dashboard/tables/listing.h"
#include "dashboard/tables/train_runs.h"
#include "http/get.h"
#include "shm/attach.h"

namespace sheaf::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLogBytes = 1 << 20;      // Of a file, its end.
constexpr size_t kAllLogBytes = 64 << 20;  // The files that were written last.
constexpr uint32_t kRows = 1000;           // Of a listing.

std::string ReadEnd(const fs::path& path, size_t most) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<int64_t>(file.tellg());
  if (size > static_cast<int64_t>(most)) {
    file.seekg(size - static_cast<int64_t>(most));
  } else {
    file.seekg(0);
  }
  std::string text(most, '\0');
  file.read(text.data(), static_cast<std::streamsize>(most));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

std::string ReadKernel(const std::string& path) { return WholeFile(path).value_or(""); }

std::vector<std::string> VariablesOf(int os_pid) {
  return absl::StrSplit(ReadKernel(absl::StrCat("/proc/", os_pid, "/environ")), '\0',
                        absl::SkipEmpty());
}

class Dump {
 public:
  Dump(const DumpOptions& options, RunningNode node)
      : query_(options.query), node_(std::move(node)), tar_(UnixNow() / kSecond) {
    query_.address = node_.session;
  }

  std::string Make() {
    HideSecrets();
    AddAbout();
    AddState();
    AddStacks();
    AddProfile();
    AddMetrics();
    AddLogs();
    Add("problems.txt", absl::StrJoin(problems_, "\n"));
    return dashboard::Gzip(std::move(tar_).Done());
  }
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void Add(const std::string& name, std::string text) {
    if (!text.empty() && text.back() != '\n') text += '\n';
    tar_.Add(absl::StrCat("sheaf-dump/", name), redaction_.Apply(std::move(text)));
  }
  // Adds what `make` gives, or says why there is nothing.
  void Try(const std::string& name, const std::function<absl::StatusOr<std::string>()>& make) {
    absl::StatusOr<std::string> text = make();
    if (text.ok()) return Add(name, *std::move(text));
    problems_.push_back(absl::StrCat(name, ": ", text.status().message()));
  }

  // The files with tokens of this node, and what the variables of its daemon name so.
  void HideSecrets() {
    const std::vector<std::string> variables = VariablesOf(node_.os_pid);
    redaction_.HideIn(variables);
    redaction_.HideIn(OwnEnvironment());
    std::vector<std::string> files = {node_.session + "/token",
                                      fs::path(node_.session).parent_path() / "token"};
    for (const std::string& variable : variables) {
      for (const char* name : {"SHEAF_TOKEN_FILE=", "SHEAF_METRICS_TOKEN_FILE="}) {
        if (variable.starts_with(name))
          files.push_back(variable.substr(std::string_view(name).size()));
      }
    }
    if (const auto settings = LoadSettings(); settings.ok())
      files.push_back(settings->base_directory + "/token");
    for (const std::string& file : files) redaction_.Hide(ReadEnd(file, 4096));
  }

  void AddAbout() {
    utsname system{};
    uname(&system);
    Add("about.txt",
        absl::StrCat("sheaf ", std::string(kSheafVersion), "\nlayout ",
                     absl::Hex(kShmLayoutHash, absl::kZeroPad16), "\nsystem ", system.sysname, " ",
                     system.release, " ", system.machine, "\nhost ", system.nodename, "\nsession ",
                     node_.session, "\nnode process ", node_.os_pid, "\ntime ", UnixNow() / kSecond,
                     "\n"));
    const std::string path = absl::StrCat("/proc/", node_.os_pid, "/");
    Add("config/command.txt",
        absl::StrReplaceAll(ReadKernel(path + "cmdline"), {{std::string(1, '\0'), " "}}));
    Add("config/environment.txt", Redaction::ShowVariables(VariablesOf(node_.os_pid)));
    Add("config/limits.txt", ReadKernel(path + "limits"));
    Add("config/meminfo.txt", ReadKernel("/proc/meminfo"));
  }

  absl::StatusOr<proto::StateAnswer> Question(proto::StateQuery query) const {
    SHEAF_ASSIGN_OR_RETURN(proto::StateAnswer answer, Ask(query_, query));
    if (!answer.error().empty()) return absl::InternalError(answer.error());
    return answer;
  }

  void AddState() {
    Try("state/status.json", [&]() -> absl::StatusOr<std::string> {
      proto::StateQuery query;
      query.set_what(proto::StateQuery::STATUS);
      SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, Question(query));
      metrics_url_ = answer.metrics_url();
      return StatusJson(answer);
    });
    for (const char* kind : kListKinds) {
      Try(absl::StrCat("state/", kind, ".json"), [&]() -> absl::StatusOr<std::string> {
        proto::StateQuery query = ListQuery(kind);
        query.set_limit(kRows);
        query.set_ended(query.what() == proto::StateQuery::TASKS);
        SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, Question(query));
        return ListJson(kind, answer);
      });
    }
    Try("state/train-runs.json", [&]() -> absl::StatusOr<std::string> {
      const auto ask = [&](const proto::StateQuery& query, Nanos) { return Ask(query_, query); };
      SHEAF_ASSIGN_OR_RETURN(const Listing runs, dashboard::ListTrainRuns(ask, query_.timeout));
      return runs.Json();
    });
  }

  void AddStacks() {
    Try("stacks.txt", [&]() -> absl::StatusOr<std::string> {
      SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer,
                             CollectStacks({.query = query_, .names = {}, .node = 0}));
      return dashboard::StacksText(answer);
    });
  }

  void AddProfile() {
    Try("profile.folded", [&]() -> absl::StatusOr<std::string> {
      proto::StateQuery query;
      query.set_what(proto::StateQuery::PROFILE);
      SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, Question(query));
      return dashboard::FormatProfile(answer, dashboard::ProfileFormat::kFolded, 0, 0);
    });
  }

  void AddMetrics() {
    Try("metrics.txt", [&]() -> absl::StatusOr<std::string> {
      if (metrics_url_.empty()) return absl::NotFoundError("the node serves none");
      return http::Get(metrics_url_, query_.timeout);
    });
  }

  void AddLogs() {
    std::vector<std::pair<fs::file_time_type, fs::path>> files;
    std::error_code error;
    for (fs::directory_iterator entry(node_.session + "/logs", error), end; !error && entry != end;
         entry.increment(error)) {
      std::error_code ignored;
      if (!entry->is_regular_file(ignored) || entry->is_symlink(ignored)) continue;
      files.emplace_back(entry->last_write_time(ignored), entry->path());
    }
    if (error) problems_.push_back(absl::StrCat("logs: ", error.message()));
    std::sort(files.rbegin(), files.rend());
    size_t room = kAllLogBytes, left_out = 0;
    for (const auto& [time, path] : files) {
      if (room == 0) {
        ++left_out;
        continue;
      }
      std::string text = ReadEnd(path, std::min(kLogBytes, room));
      room -= text.size();
      Add(absl::StrCat("logs/", path.filename().string()), std::move(text));
    }
    if (left_out != 0)
      problems_.push_back(absl::StrCat("logs: ", left_out, " older files are left out"));
  }

  QueryOptions query_;
  const RunningNode node_;
  TarFile tar_;
  Redaction redaction_;
  std::string metrics_url_;
  std::vector<std::string> problems_;
};

absl::Status Write(const std::string& path, const std::string& bytes) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", absl::ErrnoToStatus(errno, "cannot be made").message(),
                     "; name a file that is not there yet"));
  }
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t size = write(file.get(), bytes.data() + done, bytes.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      const absl::Status status = absl::ErrnoToStatus(errno, path);
      unlink(path.c_str());
      return status;
    }
    done += static_cast<size_t>(size);
  }
  return absl::OkStatus();
}

}  // namespace

int RunDump(const DumpOptions& options) {
  std::error_code ignored;
  if (fs::exists(options.file, ignored)) {
    return Complain(absl::InvalidArgumentError(
        absl::StrCat(options.file, " is there already: name a file that is not")));
  }
  const absl::StatusOr<RunningNode> node = FindNode(options.query);
  if (!node.ok()) return Complain(node.status());
  Dump dump(options, *node);
  if (const absl::Status written = Write(options.file, dump.Make()); !written.ok())
    return Complain(written);
  for (const std::string& problem : dump.problems())
    std::fprintf(stderr, "sheaf: left out: %s\n", Printable(problem).c_str());
  std::printf(
      "%s has what sheaf knows of %s: state, settings, logs, stacks, profile, metrics.\n"
      "Tokens and values of variables are taken out; look through the logs before you send it.\n",
      options.file.c_str(), node->session.c_str());
  return kDone;
}

}  // namespace sheaf::cli
