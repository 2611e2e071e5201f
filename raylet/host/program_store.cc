// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/program_store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "raylet/host/program_file.h"
#include "rpc/security/hmac.h"

namespace sheaf {
namespace {

namespace fs = std::filesystem;

constexpr int kTries = 3;  // Of one block.
// For a node that may be dead, when there is a file to go on with.
constexpr Nanos kPatience = 2 * kSecond;
constexpr char kPartial[] = ".partial";

absl::Status WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return absl::ErrnoToStatus(errno, "cannot write it to disk");
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return absl::OkStatus();
}

UniqueFd OpenToExecute(const std::string& path) {
  return UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

}  // namespace

struct ProgramStore::Wait {
  Mutex mutex;
  CondVar changed;
  bool given_up ABSL_GUARDED_BY(mutex) = false;
  std::optional<absl::StatusOr<Answer>> answer ABSL_GUARDED_BY(mutex);
};

ProgramStore::ProgramStore(ProgramStoreOptions options, BlockSource& blocks)
    : options_(std::move(options)), blocks_(blocks) {}

void ProgramStore::Find(ProcessId driver, std::string path, Done done) {
  const MutexLock lock(mutex_);
  if (stopping_) return;
  if (thread_ == nullptr) thread_ = std::make_unique<ThreadExecutor>("programs");
  thread_->Post([this, driver, path = std::move(path), done = std::move(done)] {
    absl::StatusOr<UniqueFd> program = FindOnThread(driver, path);
    {
      const MutexLock lock(mutex_);
      if (stopping_) return;
    }
    if (program.ok()) return done(std::move(program));
    done(absl::Status(program.status().code(),
                      absl::StrCat("the program of its job, ", path, ", did not come from node ",
                                   driver.node, ": ", program.status().message())));
  });
}

void ProgramStore::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    if (waiting_ != nullptr) {
      const MutexLock wait_lock(waiting_->mutex);
      waiting_->given_up = true;
      waiting_->changed.NotifyAll();
    }
  }
  if (thread_ != nullptr) thread_->Stop();
}

absl::StatusOr<UniqueFd> ProgramStore::FindOnThread(ProcessId driver, const std::string& path) {
  UniqueFd local = OpenToExecute(path);
  absl::StatusOr<ProgramFile> here = absl::NotFoundError("");
  if (local.valid()) here = ExamineProgram(local.get());
  const absl::StatusOr<Answer> answer =
      driver.node == 0 ? absl::UnavailableError("its driver is gone with its node")
                       : Ask(driver, here.ok() ? here->identity : std::string(), /*offset=*/0,
                             /*length=*/0, here.ok() ? kPatience : options_.block_timeout);
  if (!answer.ok()) {  // A detached actor outlives its driver: what lies here is the best there is.
    if (!here.ok()) return answer.status();
    Log(LogLevel::kWarning, "node ", driver.node, " does not say which program ", driver.ToString(),
        " runs (", std::string(answer.status().message()), "): workers run what lies at ", path,
        " here");
    return local;
  }
  const proto::BlockHead& wanted = answer->head;
  if (wanted.same_file()) return local;
  if (wanted.sha256().size() != sizeof(Digest))
    return absl::InternalError("that node named no digest of it");
  if (here.ok() && here->size_bytes == wanted.size_bytes()) {
    const absl::StatusOr<std::string> digest = DigestOfProgram(local.get(), here->size_bytes);
    if (digest.ok() && *digest == wanted.sha256()) return local;
  }
  const std::string kept =
      absl::StrCat(options_.directory, "/", absl::BytesToHexString(wanted.sha256()));
  UniqueFd program = OpenToExecute(kept);
  if (!program.valid()) {
    const absl::Status fetched = Fetch(driver, wanted, kept + kPartial);
    std::error_code failed;
    if (fetched.ok()) fs::rename(kept + kPartial, kept, failed);
    if (!fetched.ok() || failed) {
      std::error_code ignored;
      fs::remove(kept + kPartial, ignored);
      return fetched.ok() ? absl::InternalError(absl::StrCat(kept, ": ", failed.message()))
                          : fetched;
    }
    program = OpenToExecute(kept);
  }
  if (!program.valid()) return absl::ErrnoToStatus(errno, kept);
  return program;
}

absl::Status ProgramStore::Fetch(ProcessId driver, const proto::BlockHead& wanted,
                                 const std::string& to) {
  SHEAF_RETURN_IF_ERROR(MakeRoom(wanted.size_bytes()));
  UniqueFd file(open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0700));
  if (!file.valid()) return absl::ErrnoToStatus(errno, to);
  RunningSha256 sum;
  for (uint64_t offset = 0; offset < wanted.size_bytes();) {
    const uint64_t length = std::min(options_.block_bytes, wanted.size_bytes() - offset);
    absl::StatusOr<Answer> block = absl::UnknownError("");
    for (int i = 0; i < kTries && !block.ok(); ++i)
      block = Ask(driver, {}, offset, length, options_.block_timeout);
    if (!block.ok()) return block.status();
    if (block->bytes.size() != length || block->head.sha256() != wanted.sha256())
      return absl::AbortedError("it changed while it was read");
    SHEAF_RETURN_IF_ERROR(WriteAll(file.get(), block->bytes));
    sum.Add(block->bytes);
    offset += length;
  }
  if (AsView(sum.Finish()) != wanted.sha256()) return absl::DataLossError("its digest is wrong");
  return absl::OkStatus();
}

absl::StatusOr<ProgramStore::Answer> ProgramStore::Ask(ProcessId driver, const std::string& file,
                                                       uint64_t offset, uint64_t length,
                                                       Nanos timeout) {
  proto::BlockRequest request;
  request.set_program_of(driver.packed());
  request.set_file(file);
  request.set_offset(offset);
  request.set_length(length);
  const auto wait = std::make_shared<Wait>();
  {
    const MutexLock lock(mutex_);
    if (stopping_) return absl::CancelledError("this node ends");
    waiting_ = wait;
  }
  blocks_.Fetch(driver.node, request.SerializeAsString(), timeout,
                [wait, length](absl::StatusOr<std::unique_ptr<ReceivedBlock>> received) {
                  absl::StatusOr<Answer> answer = absl::InternalError("its answer cannot be read");
                  Answer parsed;
                  if (!received.ok()) {
                    answer = received.status();
                  } else if ((*received)->size() > length) {
                    answer = absl::DataLossError("it is longer than what was asked for");
                  } else if (parsed.head.ParseFromString((*received)->head())) {
                    parsed.bytes.resize((*received)->size());
                    const absl::Status whole =
                        (*received)->CopyTo({parsed.bytes.data(), parsed.bytes.size()});
                    if (!whole.ok()) {
                      answer = whole;
                    } else if (parsed.head.outcome() != proto::BlockHead::FOUND) {
                      answer = absl::NotFoundError("no job of that driver is there any more");
                    } else {
                      answer = std::move(parsed);
                    }
                  }
                  const MutexLock lock(wait->mutex);
                  wait->answer = std::move(answer);
                  wait->changed.NotifyAll();
                });
  const MutexLock lock(wait->mutex);
  // The links keep to the timeout; the second half of the bound is for a source that does not.
  wait->changed.WaitFor(wait->mutex, 2 * timeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(wait->mutex) {
    return wait->given_up || wait->answer.has_value();
  });
  if (!wait->answer.has_value()) return absl::DeadlineExceededError("no answer");
  return std::move(*wait->answer);
}

absl::Status ProgramStore::MakeRoom(uint64_t size_bytes) const {
  if (size_bytes > options_.max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("it has ", size_bytes,
                                                     " bytes, more than the ", options_.max_bytes,
                                                     " that this node keeps of programs"));
  }
  std::error_code failed;
  fs::create_directories(options_.directory, failed);
  if (!failed) fs::permissions(options_.directory, fs::perms::owner_all, failed);
  if (failed) return absl::InternalError(absl::StrCat(options_.directory, ": ", failed.message()));
  std::vector<fs::directory_entry> kept;
  uint64_t total = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(options_.directory, failed)) {
    kept.push_back(entry);
    total += entry.file_size(failed);
  }
  std::sort(kept.begin(), kept.end(), [&](const auto& a, const auto& b) {
    return a.last_write_time(failed) < b.last_write_time(failed);
  });
  // A job that uses it has it open.
  for (size_t i = 0; i < kept.size() && total + size_bytes > options_.max_bytes; ++i) {
    total -= std::min<uint64_t>(total, kept[i].file_size(failed));
    fs::remove(kept[i].path(), failed);
  }
  return absl::OkStatus();
}

}  // namespace sheaf
