// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/gcs_main.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "cli/gcs_pipe.h"
#include "cli/query.h"
#include "gcs/gcs_process.h"
#include "metrics/page.h"
#include "shm/attach.h"
#include "shm/segment.h"

namespace sheaf::cli {
namespace {

constexpr Nanos kFirstWord = 10 * kSecond;
constexpr Nanos kLastWords = kSecond;
constexpr int kDiskFailed = 74;  // EX_IOERR.
// A node that was killed a moment ago took its GCS with it, which may hold the database yet.
constexpr Nanos kPredecessorEnds = 2 * kSecond;
constexpr Nanos kLookAgain = 20 * kMillisecond;

class Gcs {
 public:
  explicit Gcs(const GcsFlags& flags) : flags_(flags) {}
  ~Gcs() {
    if (loop_ != nullptr) loop_->Stop();
  }

  absl::Status Start(UnixSocket socket, int metrics_fd) {
    SHEAF_ASSIGN_OR_RETURN(metrics_,
                           Mapping::Map(metrics_fd, 0, kMetricsBytes, Access::kReadWrite));
    SHEAF_ASSIGN_OR_RETURN(loop_, EventLoop::Start("gcs-pipe"));
    GcsPipe::Events events;
    events.on_message = [this](GcsMessage message) { OnMessage(std::move(message)); };
    events.on_end = [this](const std::string&) { End(); };
    pipe_ = std::make_shared<GcsPipe>(*loop_, std::move(socket), std::move(events));
    if (absl::Status started = StartGcs(); !started.ok()) {
      pipe_->Send(GcsWord::kFailed, 0, static_cast<uint64_t>(started.code()),
                  {started.message().data(), started.message().size()});
      pipe_->SendAll(kLastWords);
      return started;
    }
    SayServing();
    loop_->Run([this] { pipe_->Start(); });
    return absl::OkStatus();
  }

  // Until the node is gone, or wants it to end.
  void Serve() {
    over_.get_future().get();
    gcs_->Stop();
    pipe_->SendAll(kLastWords);
    loop_->Run([this] { pipe_->Close(); });
  }

 private:
  absl::Status StartGcs() {
    if (flags_.must_exist && access(flags_.database.c_str(), F_OK) != 0) {
      return absl::NotFoundError(
          absl::StrCat(flags_.database, ", the state of the cluster, was removed"));
    }
    const Nanos deadline = Deadline(MonotonicNow(), kPredecessorEnds);
    while (true) {
      absl::StatusOr<std::unique_ptr<GcsProcess>> started = GcsProcess::Start(Options());
      if (started.ok()) {
        gcs_ = *std::move(started);
        return absl::OkStatus();
      }
      const bool in_use = absl::StrContains(started.status().message(), "another process uses it");
      if (!in_use || MonotonicNow() >= deadline) return started.status();
      WaitForFd(pipe_->fd(), /*to_write=*/false, kLookAgain).IgnoreError();
    }
  }

  // Who they are comes before what is said to them: a node that had to send a frame of the GCS before
  // it knows that it hosts one would send it as its own.
  void SayServing() {
    SHEAF_FAILPOINT("gcs.before_serving");
    const MutexLock lock(mutex_);
    for (const auto& [node, address] : gcs_->addresses())
      pipe_->Send(GcsWord::kMember, 0, node, address);
    pipe_->Send(GcsWord::kServing, 0, gcs_->term(), gcs_->cluster_id());
    said_serving_ = true;
    for (const GcsMessage& frame : std::exchange(early_, {}))
      pipe_->Send(frame.word, frame.kind, frame.peer, frame.body);
  }

  // On the thread of the GCS, which may tell nodes of its term before SayServing is called.
  void SendFrame(ProcessId to, FrameKind kind, std::string body) {
    const MutexLock lock(mutex_);
    if (said_serving_) {
      pipe_->Send(GcsWord::kFrame, static_cast<uint32_t>(kind), to.packed(), body);
    } else {
      early_.push_back(
          {GcsWord::kFrame, static_cast<uint32_t>(kind), to.packed(), std::move(body)});
    }
  }

  GcsProcessOptions Options() {
    GcsProcessOptions options;
    options.gcs.address = flags_.address;
    options.gcs.least_term = flags_.least_term;
    if (!flags_.must_exist) options.gcs.return_within = kReturnToHead;
    options.gcs.max_ended_submissions = flags_.keep_jobs;
    options.database = flags_.database;
    options.metrics = reinterpret_cast<metrics::Page*>(metrics_.data());
    options.tick_period = 0;  // By the node's pulses.
    options.send = [this](ProcessId to, FrameKind kind, std::string body) {
      SendFrame(to, kind, std::move(body));
    };
    options.on_fatal = [pipe = pipe_](const absl::Status& why) {
      Log(LogLevel::kError,
          "the GCS cannot trust its disk and ends, to recover at its next start: ", why.ToString());
      if (absl::IsDataLoss(why)) {  // With what is there it would serve an older state.
        pipe->Send(GcsWord::kFailed, 0, static_cast<uint64_t>(why.code()),
                   {why.message().data(), why.message().size()});
        pipe->SendAll(kLastWords);
      }
      FlushLog();
      _exit(kDiskFailed);
    };
    return options;
  }

  void OnMessage(GcsMessage message) {
    switch (message.word) {
      case GcsWord::kFrame:
        return gcs_->Post(ProcessId::Unpack(message.peer), static_cast<FrameKind>(message.kind),
                          std::move(message.body));
      case GcsWord::kPulse:
        return gcs_->PostTick();
      case GcsWord::kBackup:
        return gcs_->Backup(
            message.body, [pipe = pipe_, question = message.peer](const absl::Status& status) {
              pipe->Send(GcsWord::kBackupDone, static_cast<uint32_t>(status.code()), question,
                         {status.message().data(), status.message().size()});
            });
      case GcsWord::kEnd:
        return End();
      default:
        return;  // Of a GCS.
    }
  }

  // The node says so, and its end of the pipe closes as well.
  void End() {
    if (!std::exchange(ending_, true)) over_.set_value();
  }

  const GcsFlags flags_;
  Mapping metrics_;
  std::unique_ptr<EventLoop> loop_;
  std::shared_ptr<GcsPipe> pipe_;
  std::promise<void> over_;
  bool ending_ = false;  // The loop's.
  Mutex mutex_;
  bool said_serving_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<GcsMessage> early_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<GcsProcess> gcs_;  // Its thread uses what stands above.
};

}  // namespace

std::vector<std::string> GcsFlags::Arguments() const {
  std::vector<std::string> out = {"sheaf",
                                  "gcs-serve",
                                  absl::StrCat("--fd=", fd),
                                  "--database=" + database,
                                  "--log-dir=" + log_directory,
                                  absl::StrCat("--least-term=", least_term),
                                  absl::StrCat("--keep-jobs=", keep_jobs)};
  if (!address.empty()) out.push_back("--address=" + address);
  if (must_exist) out.push_back("--must-exist");
  if (log_json) out.push_back("--log-json");
  return out;
}

int RunGcs(const GcsFlags& flags) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // A node that was killed has no GCS.
  // The node alone ends it: it may have something to say after these.
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) ::signal(signal, SIG_IGN);
  UniqueFd end(flags.fd);
  if (fcntl(end.get(), F_SETFD, FD_CLOEXEC) != 0) {
    end.Release();
    return Complain(
        absl::InvalidArgumentError(absl::StrCat("descriptor ", flags.fd, " is not open")));
  }
  UnixSocket socket(std::move(end));
  absl::StatusOr<SocketMessage> first = socket.Receive(kFirstWord);
  if (!first.ok() || first->fds.size() != 1) return kFailed;  // The node is gone already.
  const absl::StatusOr<Settings> settings = LoadSettings();
  if (!settings.ok()) return Complain(settings.status());
  if (absl::Status armed = ArmFailpoints(settings->failpoints, 0); !armed.ok()) {
    return Complain(armed);
  }
  LogOptions log;
  log.level = settings->log_level;
  log.file = absl::StrCat(flags.log_directory, "/gcs.log");
  log.process = absl::StrCat("gcs ", getpid());
  if (flags.log_json) log.json_dataset = "sheaf.gcs";
  if (absl::Status logs = StartLog(log); !logs.ok()) return Complain(logs);
  {
    Gcs gcs(flags);
    const absl::Status started = gcs.Start(std::move(socket), first->fds[0].get());
    if (!started.ok()) {
      Log(LogLevel::kError, "cannot start: ", started.ToString());
      FlushLog();
      return Complain(started);
    }
    gcs.Serve();
  }
  FlushLog();
  return kDone;
}

}  // namespace sheaf::cli
