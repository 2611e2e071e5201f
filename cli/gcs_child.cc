// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/gcs_child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "cli/gcs_main.h"
#include "raylet/host/proc_files.h"
#include "raylet/host/spawn.h"

namespace sheaf::cli {
namespace {

constexpr Nanos kPulsePeriod = 100 * kMillisecond;
constexpr Nanos kFirstStart = 60 * kSecond;  // It reads its database, of up to some GiB.
constexpr Nanos kStopTime = 5 * kSecond;
constexpr Nanos kFirstPause = 100 * kMillisecond;
constexpr Nanos kLongestPause = 5 * kSecond;
constexpr Nanos kGoodRun = 10 * kSecond;  // After so long an end counts as the first one again.
constexpr size_t kMostWaitingBytes = 64 << 20;  // Who is dropped asks again when it is back.

std::string Describe(int status) {
  if (WIFSIGNALED(status)) {
    return absl::StrCat("signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  }
  return absl::StrCat("exit status ", WEXITSTATUS(status));
}

}  // namespace

GcsChild::GcsChild(GcsChildOptions options)
    : options_(std::move(options)),
      guard_(PauseGuardOptions{}, clock_, [this](PauseGuard::Frame frame) {
        if (!silenced_) options_.send(frame.to, frame.kind, std::move(frame.body));
      }) {}

absl::Status GcsChild::Start() {
  SHEAF_ASSIGN_OR_RETURN(loop_, EventLoop::Start("gcs-child"));
  absl::Status begun;
  loop_->Run([&] {
    begun = Begin();
    Pulse();
  });
  SHEAF_RETURN_IF_ERROR(begun);
  return AwaitFirstStart();
}

absl::Status GcsChild::AwaitFirstStart() {
  const MutexLock lock(mutex_);
  const bool answered = changed_.WaitFor(
      mutex_, kFirstStart,
      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return first_start_.has_value(); });
  return answered ? *first_start_ : absl::DeadlineExceededError("the GCS does not start");
}

// The process is this thread's child: it is killed when the thread ends, and so does it when this
// process is killed (cli/gcs_main.cc).
absl::Status GcsChild::Begin() {
  SHEAF_ASSIGN_OR_RETURN(auto ends, UnixSocket::Pair());
  const UniqueFd program(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const std::string log = absl::StrCat(options_.log_directory, "/gcs.err");
  const UniqueFd words(open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  GcsFlags flags;
  flags.fd = ends.second.fd();
  flags.database = options_.database;
  flags.address = options_.address;
  flags.log_directory = options_.log_directory;
  flags.keep_jobs = options_.keep_jobs;
  flags.log_json = options_.log_json;
  flags.least_term = terms_.Least(UnixNow());
  flags.must_exist = was_serving_;
  SpawnRequest request;
  request.executable_fd = program.get();
  request.argv = flags.Arguments();
  request.environ = OwnEnvironment();
  request.stdout_fd = words.get();
  request.stderr_fd = words.get();
  request.inherited_fds = {ends.second.fd()};
  SHEAF_ASSIGN_OR_RETURN(const Spawned spawned, Spawn(request));
  pid_ = spawned.pid;
  // What it has is sent with the first message.
  const absl::Status sent = ends.first.Send("metrics", {options_.metrics_fd}, kSecond);
  if (!sent.ok())
    Log(LogLevel::kError, "the GCS does not take its first message: ", sent.ToString());
  GcsPipe::Events events;
  events.on_message = [this](GcsMessage message) { OnMessage(std::move(message)); };
  events.on_end = [this](const std::string&) { OnEnd(); };
  auto pipe = std::make_shared<GcsPipe>(*loop_, std::move(ends.first), std::move(events));
  {
    const MutexLock lock(mutex_);
    pipe_ = pipe;
    for (const Waiting& frame : std::exchange(waiting_, {})) {
      pipe_->Send(GcsWord::kFrame, static_cast<uint32_t>(frame.kind), frame.from.packed(),
                  frame.body);
    }
    waiting_bytes_ = 0;
  }
  pipe->Start();
  return absl::OkStatus();
}

void GcsChild::Post(ProcessId from, FrameKind kind, std::string_view body) {
  const MutexLock lock(mutex_);
  if (pipe_ != nullptr) {
    pipe_->Send(GcsWord::kFrame, static_cast<uint32_t>(kind), from.packed(), body);
  } else if (!stopped_ && waiting_bytes_ < kMostWaitingBytes) {
    waiting_.push_back({from, kind, std::string(body)});
    waiting_bytes_ += body.size();
  }
}

void GcsChild::Backup(const std::string& path, std::function<void(absl::Status)> done) {
  MutexLock lock(mutex_);
  if (pipe_ != nullptr) {
    questions_[++last_question_] = std::move(done);
    return pipe_->Send(GcsWord::kBackup, 0, last_question_, path);
  }
  lock.Unlock();
  done(absl::UnavailableError("the GCS is being started anew; ask again"));
}

void GcsChild::OnMessage(GcsMessage message) {
  switch (message.word) {
    case GcsWord::kFrame:
      return guard_.Pass({ProcessId::Unpack(message.peer), static_cast<FrameKind>(message.kind),
                          std::move(message.body)});
    case GcsWord::kMember:
      return options_.on_member(static_cast<NodeNumber>(message.peer), message.body);
    case GcsWord::kServing: {
      serving_since_ = clock_.Now();
      if (was_serving_) Log(LogLevel::kInfo, "the GCS is back, in term ", message.peer);
      was_serving_ = true;
      terms_.Began(message.peer);
      options_.on_serving(message.body, message.peer);
      const MutexLock lock(mutex_);
      first_start_ = absl::OkStatus();
      changed_.NotifyAll();
      return;
    }
    case GcsWord::kFailed:
      return OnFailed(absl::Status(static_cast<absl::StatusCode>(message.peer), message.body));
    case GcsWord::kBackupDone: {
      std::function<void(absl::Status)> done;
      {
        const MutexLock lock(mutex_);
        const auto question = questions_.find(message.peer);
        if (question == questions_.end()) return;
        done = std::move(question->second);
        questions_.erase(question);
      }
      return done(absl::Status(static_cast<absl::StatusCode>(message.kind), message.body));
    }
    default:
      return;  // Of a node.
  }
}

void GcsChild::OnFailed(absl::Status why) {
  if (!was_serving_) {
    const MutexLock lock(mutex_);
    first_start_ = std::move(why);
    changed_.NotifyAll();
    return;
  }
  Log(LogLevel::kError, "the GCS cannot start anew: ", why.ToString());
  // Others may pass: a disk that says no, memory that is out.
  if (absl::IsDataLoss(why) || absl::IsNotFound(why) || absl::IsFailedPrecondition(why)) {
    lost_ = true;
    options_.on_lost(absl::StrCat("the GCS cannot go on: ", why.message()));
  }
}

void GcsChild::OnEnd() {
  const pid_t pid = pid_;
  kill(pid, SIGKILL);  // It may only have closed its end.
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  std::map<uint64_t, std::function<void(absl::Status)>> questions;
  {
    const MutexLock lock(mutex_);
    pipe_ = nullptr;
    questions.swap(questions_);
    if (!first_start_) {
      first_start_ =
          absl::AbortedError(absl::StrCat("the GCS ended at its start: ", Describe(status)));
    }
    changed_.NotifyAll();
  }
  for (auto& [number, done] : questions) done(absl::UnavailableError("the GCS has ended"));
  if (!stopping_ && !lost_ && was_serving_) Again(Describe(status));
}

void GcsChild::Again(const std::string& how_it_ended) {
  const Nanos served = serving_since_ == 0 ? 0 : clock_.Now() - serving_since_;
  serving_since_ = 0;
  if (served >= kGoodRun) crashes_ = 0;
  const Nanos pause =
      crashes_ == 0 ? 0 : std::min(kLongestPause, kFirstPause << std::min(crashes_ - 1, 10));
  ++crashes_;
  Log(LogLevel::kError, "the GCS has ended (", how_it_ended, "), time ", crashes_,
      " in a row; it is started anew in ", pause / kMillisecond, " ms");
  loop_->After(pause, [this] {
    if (stopping_) return;
    if (const absl::Status begun = Begin(); !begun.ok()) Again(std::string(begun.message()));
  });
}

void GcsChild::Pulse() {
  guard_.Turn();
  std::shared_ptr<GcsPipe> pipe;
  {
    const MutexLock lock(mutex_);
    pipe = pipe_;
  }
  if (pipe != nullptr) pipe->Send(GcsWord::kPulse, 0, 0, {});
  loop_->After(kPulsePeriod, [this] { Pulse(); });
}

void GcsChild::Stop() {
  if (loop_ == nullptr) return;
  loop_->Run([this] {
    stopping_ = true;
    const MutexLock lock(mutex_);
    stopped_ = true;
    if (pipe_ != nullptr) pipe_->Send(GcsWord::kEnd, 0, 0, {});
  });
  {
    const MutexLock lock(mutex_);
    changed_.WaitFor(mutex_, kStopTime,
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return pipe_ == nullptr; });
  }
  loop_->Run([this] {
    std::shared_ptr<GcsPipe> pipe;
    {
      const MutexLock lock(mutex_);
      pipe = pipe_;
    }
    if (pipe == nullptr) return;
    Log(LogLevel::kError, "the GCS does not end; killing it");
    pipe->Close();
    OnEnd();
  });
  loop_->Stop();
}

}  // namespace sheaf::cli
