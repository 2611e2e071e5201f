// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/gcs_process.h"

#include <deque>
#include <future>
#include <map>
#include <utility>

#include "base/status_macros.h"
#include "gcs/gcs_metrics.h"
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
      : options_(options), clock_(clock), silenced_(silenced) {}

  Channel& To(ProcessId peer) override {
    return channels_.try_emplace(peer, peer, *this).first->second;
  }
  // Looks for pauses, and lets go what was held after one.
  void Turn() {
    const Nanos now = clock_.Now();
    if (last_turn_ != 0 && now - last_turn_ >= options_.longest_pause) {
      held_until_ = now + options_.held_after_pause;
    }
    last_turn_ = now;
    while (!held_.empty() && now >= held_until_) {
      Held frame = std::move(held_.front());
      held_.pop_front();
      if (!silenced_) options_.send(frame.to, frame.kind, std::move(frame.body));
    }
  }
  void Forget(ProcessId peer) override { channels_.erase(peer); }

 private:
  class CallbackChannel final : public Channel {
   public:
    CallbackChannel(ProcessId peer, CallbackTransport& transport)
        : peer_(peer), transport_(transport) {}
    void Send(Lane, FrameKind kind, std::string_view head, std::string_view tail) override {
      std::string body;
      body.reserve(head.size() + tail.size());
      body.append(head).append(tail);
      transport_.Send({peer_, kind, std::move(body)});
    }
    size_t queued_bytes() const override { return 0; }

   private:
    const ProcessId peer_;
    CallbackTransport& transport_;
  };
  struct Held {
    ProcessId to;
    FrameKind kind;
    std::string body;
  };
  void Send(Held frame) {
    Turn();
    if (silenced_) return;
    if (last_turn_ < held_until_) {
      held_.push_back(std::move(frame));
    } else {
      options_.send(frame.to, frame.kind, std::move(frame.body));
    }
  }

  const GcsProcessOptions& options_;
  const Clock& clock_;
  const std::atomic<bool>& silenced_;
  Nanos last_turn_ = 0;
  Nanos held_until_ = 0;
  std::deque<Held> held_;
  std::map<ProcessId, CallbackChannel> channels_;
};

GcsProcess::GcsProcess(GcsProcessOptions options)
    : options_(std::move(options)),
      random_(EntropySeed()),
      transport_(std::make_unique<CallbackTransport>(options_, clock_, silenced_)),
      loop_(std::make_unique<ThreadExecutor>(ThreadExecutor::Options{
          .name = "gcs", .tick_period = options_.tick_period, .tick = [this] { Tick(); }})) {}

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
