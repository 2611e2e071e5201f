// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/gcs_process.h"

#include <future>
#include <map>
#include <utility>

#include "base/status_macros.h"
#include "gcs/gcs_metrics.h"
#include "gcs/pause_guard.h"
#include "metrics/counter.h"

namespace sheaf {
namespace {

constexpr Nanos kMetricsPeriod = kSecond;

}  // namespace

// Every channel ends in the one callback, but for the time after a pause.
class GcsProcess::CallbackTransport final : public Transport {
 public:
  CallbackTransport(const GcsProcessOptions& options, const Clock& clock,
                    const std::atomic<bool>& silenced)
      : guard_({options.longest_pause, options.held_after_pause}, clock,
               [&options, &silenced](PauseGuard::Frame frame) {
                 if (!silenced) options.send(frame.to, frame.kind, std::move(frame.body));
               }) {}

  Channel& To(ProcessId peer) override {
    return channels_.try_emplace(peer, peer, guard_).first->second;
  }
  void Turn() { guard_.Turn(); }
  void Forget(ProcessId peer) override { channels_.erase(peer); }

 private:
  class CallbackChannel final : public Channel {
   public:
    CallbackChannel(ProcessId peer, PauseGuard& guard) : peer_(peer), guard_(guard) {}
    void Send(Lane, FrameKind kind, std::string_view head, std::string_view tail) override {
      std::string body;
      body.reserve(head.size() + tail.size());
      body.append(head).append(tail);
      guard_.Pass({peer_, kind, std::move(body)});
    }
    size_t queued_bytes() const override { return 0; }

   private:
    const ProcessId peer_;
    PauseGuard& guard_;
  };

  PauseGuard guard_;
  std::map<ProcessId, CallbackChannel> channels_;
};

GcsProcess::GcsProcess(GcsProcessOptions options)
    : options_(std::move(options)),
      random_(EntropySeed()),
      transport_(std::make_unique<CallbackTransport>(options_, clock_, silenced_)),
      loop_(std::make_unique<ThreadExecutor>(ThreadExecutor::Options{
          .name = "gcs", .tick_period = options_.tick_period, .tick = [this] { Tick(); }})) {}

void GcsProcess::PostTick() {
  loop_->Post([this] { Tick(); });
}

void GcsProcess::Tick() {
  if (!started_) return;
  transport_->Turn();
  service_->Tick();
  const Nanos now = clock_.Now();
  if (options_.metrics == nullptr || now < next_metrics_) return;
  next_metrics_ = now + kMetricsPeriod;
  WriteGcsMetrics(service_->Stats(), *options_.metrics);
}

absl::StatusOr<std::unique_ptr<GcsProcess>> GcsProcess::Start(GcsProcessOptions options) {
  options.gcs.unix_ns_at_zero = UnixNow() - MonotonicNow();
  std::unique_ptr<GcsProcess> process(new GcsProcess(std::move(options)));
  if (process->options_.database.empty()) {
    process->storage_ = std::make_unique<MemoryStorage>(process->disk_, *process->loop_);
  } else {
    SqliteStorageOptions storage{.path = process->options_.database,
                                 .on_fatal = process->options_.on_fatal};
    if (metrics::Page* page = process->options_.metrics) {
      storage.on_commit = [commits = metrics::Counter(*page, metrics::CounterId::kGcsCommits),
                           seconds = metrics::Histogram(*page, metrics::HistogramId::kGcsCommit)](
                              Nanos took) mutable {
        commits.Add();
        seconds.Observe(took);
      };
    }
    SHEAF_ASSIGN_OR_RETURN(auto sqlite, SqliteStorage::Open(std::move(storage), *process->loop_));
    process->sqlite_ = sqlite.get();
    process->storage_ = std::move(sqlite);
  }
  process->service_ =
      std::make_unique<GcsService>(process->options_.gcs, process->clock_, *process->storage_,
                                   *process->transport_, process->random_);
  std::promise<absl::Status> started;
  process->loop_->Post([&] {
    const absl::Status status = process->service_->Start();
    process->started_ = status.ok();
    process->addresses_ = process->service_->Addresses();
    started.set_value(status);
  });
  SHEAF_RETURN_IF_ERROR(started.get_future().get());
  process->cluster_id_ = process->service_->cluster_id();
  process->term_ = process->service_->term();
  return process;
}

GcsProcess::~GcsProcess() { Stop(); }

void GcsProcess::Post(ProcessId from, FrameKind kind, std::string body) {
  loop_->Post(
      [this, from, kind, body = std::move(body)] { service_->OnFrame(from, {kind, body}); });
}

void GcsProcess::Backup(std::string path, std::function<void(absl::Status)> done) {
  if (sqlite_ != nullptr) return sqlite_->Backup(std::move(path), std::move(done));
  done(absl::FailedPreconditionError("the state of this cluster is kept in memory alone"));
}

void GcsProcess::Stop() {
  if (stopped_.exchange(true)) return;
  // A command may wait for another's latch: again, as long as each round answers some. A dead disk
  // answers none.
  uint64_t before = UINT64_MAX;
  while (service_) {
    if (sqlite_ != nullptr) sqlite_->Flush();
    const uint64_t left = LoopStats().in_progress;
    if (left == 0 || left == before) break;
    before = left;
  }
  loop_->Stop();
  service_.reset();
  storage_.reset();
}

GcsStats GcsProcess::Stats() { return stopped_ ? GcsStats{} : LoopStats(); }

GcsStats GcsProcess::LoopStats() {
  std::promise<GcsStats> stats;
  loop_->Post([&] { stats.set_value(service_->Stats()); });
  return stats.get_future().get();
}

}  // namespace sheaf
