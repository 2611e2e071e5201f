// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/memory/heap.h"
#include "base/signal_mask.h"
#include "base/status_macros.h"
#include "base/text/whole_file.h"
#include "metrics/mailbox_metrics.h"
#include "worker/core/state_rows.h"
#include "worker/runtime_impl.h"

extern char** environ;

namespace sheaf {
namespace {

constexpr size_t kLargestKept = 32 << 20;  // Blocks of the heap.
constexpr Nanos kJobWait = 30 * kSecond;
constexpr Nanos kLeaveWait = 5 * kSecond;
// A worker without a raylet ends by itself so long, then at once.
constexpr Nanos kOrphanGrace = 500 * kMillisecond;
constexpr Nanos kLastOutput = 300 * kMillisecond;  // For lines of workers that come.
constexpr Nanos kLastWords = kSecond;              // For lines of workers that are being printed.
constexpr Nanos kLastCallbacks = kSecond;          // For those of OnReady that Stop brings about.

std::vector<std::string> OwnArguments() {
  const std::string all = WholeFile("/proc/self/cmdline").value_or("");
  std::vector<std::string> out;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find('\0', begin), all.size());
    out.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

void FillJob(proto::JobStart* job) {
  if (job->argv().empty()) {
    for (std::string& argument : OwnArguments()) job->add_argv(std::move(argument));
  }
  if (job->entrypoint().empty()) {
    for (const std::string& argument : job->argv())
      absl::StrAppend(job->mutable_entrypoint(), argument, " ");
    job->mutable_entrypoint()->pop_back();
  }
  if (job->working_dir().empty()) {
    char path[PATH_MAX];
    if (getcwd(path, sizeof path) != nullptr) job->set_working_dir(path);
  }
  if (job->environ().empty()) {
    for (char** variable = environ; *variable != nullptr; ++variable) {
      if (!std::string_view(*variable).starts_with("SHEAF_TOKEN=")) job->add_environ(*variable);
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Attach(RuntimeOptions options) {
  if (options.driver) FillJob(&options.job);
  AttachRequest request;
  request.socket_path = options.socket_path;
  request.role = options.driver ? AttachRole::kDriver : AttachRole::kWorker;
  request.token = options.worker_token;
  request.words = options.job.entrypoint();
  SHEAF_ASSIGN_OR_RETURN(Attached attached, sheaf::Attach(request));
  auto runtime = std::make_unique<RuntimeImpl>(std::move(options), std::move(attached));
  try {
    SHEAF_RETURN_IF_ERROR(runtime->Begin());
  } catch (const std::system_error& error) {  // Of a thread that was to be started.
    return absl::UnavailableError(
        absl::StrCat("this process may start no thread more (", error.what(),
                     "); let it have more: ulimit -u, or pids.max of its control group"));
  }
  return std::unique_ptr<Runtime>(std::move(runtime));
}

RuntimeImpl::RuntimeImpl(RuntimeOptions options, Attached attached)
    : options_(std::move(options)),
      attached_(std::move(attached)),
      self_(attached_.process),
      segment_(attached_.process_segment),
      printer_(options_.on_log_lines),
      stacks_(options_.tell_stacks, [this](const proto::StateAnswer& answer) {
        Lock lock(*driver_);
        SendMessage(core_->raylet(), FrameKind::kStateAnswer, answer);
      }) {}

absl::Status RuntimeImpl::Begin() {
  KeepFreedMemory(kLargestKept);
  if (options_.on_segment) options_.on_segment({segment_, segment_->data()});
  if (!KeepSpareDescriptor()) return absl::ErrnoToStatus(errno, "cannot open /dev/null");
  const ProcessId raylet = RayletOf(self_.node);
  mailbox_ = std::make_unique<Mailbox>(
      attached_.board(), attached_.welcome.bell, [this, raylet](ProcessId peer) {
        if (peer == raylet) return;
        proto::ConnectRequest connect;
        connect.set_peer(peer.packed());
        SendMessage(mailbox_->To(raylet), FrameKind::kConnectRequest, connect);
      });
  SHEAF_RETURN_IF_ERROR(mailbox_->AddRing(raylet, attached_.raylet_rings.get(), false,
                                          attached_.welcome.raylet_bell));
  const auto ring_self = [this](Lane lane) { RingBell(mailbox_->bell(), lane); };
  SHEAF_ASSIGN_OR_RETURN(core_, ProcessCore::Open({.self = self_,
                                                   .clock = clock_,
                                                   .rings = *mailbox_,
                                                   .ring_self = ring_self,
                                                   .segment = segment_,
                                                   .frames = *this,
                                                   .executions = *this,
                                                   .limits = limits_,
                                                   .events = options_.events},
                                                  std::move(attached_.arena)));
  core_->owner.references.set_value_budget(options_.value_bytes);
  core_->set_leak_age(static_cast<Nanos>(options_.leak_age * kSecond));
  loop_calls_ = std::make_unique<LoopCalls>(*core_);
  driver_ = std::make_unique<Driver>(Driver::Deps{.mailbox = *mailbox_,
                                                  .core = *core_,
                                                  .frames = *this,
                                                  .host = *this,
                                                  .of_user = options_.driver,
                                                  .interrupted = options_.interrupted});
  departures_ = std::make_unique<Departures>(*core_, *driver_, clock_, [this](Nanos patience) {
    leaves_by_ = Deadline(clock_.Now(), patience);
    Leave();
  });
  {
    const AllSignalsBlocked blocked;
    background_ = std::thread([this] { driver_->RunBackground(); });
  }
  if (!options_.driver) return absl::OkStatus();
  Lock lock(*driver_);
  departures_->Reserve();
  SendMessage(core_->raylet(), FrameKind::kJobStart, options_.job);
  const absl::Status status = driver_->DriveUntil(lock, Deadline(clock_.Now(), kJobWait),
                                                  [&] { return core_->dispatch.job().answered; });
  if (absl::IsDeadlineExceeded(status))
    return absl::UnavailableError("the node did not start the job in time");
  if (!status.ok()) return status;
  if (const std::string& error = core_->dispatch.job().error; !error.empty()) {
    return absl::FailedPreconditionError(error);
  }
  return absl::OkStatus();
}

RuntimeImpl::~RuntimeImpl() { Stop(kLeaveWait); }

void Runtime::AwaitOutput() {
  proto::StateQuery output;
  output.set_what(proto::StateQuery::OUTPUT);
  (void)Query(std::move(output), Deadline(MonotonicNow(), kLastOutput));
}

bool RuntimeImpl::Stop(Nanos patience) {
  if (stopped_) return true;
  if (!driver_) return stopped_ = true;  // It has not begun.
  const Nanos deadline = Deadline(clock_.Now(), patience);
  {
    Lock lock(*driver_);
    if (options_.driver && !driver_->ended()) {
      core_->owner.submitter.ReturnAll();
      PublishMetrics();
      SendMessage(core_->raylet(), FrameKind::kGoodbye, proto::Goodbye());
      core_->Flush();
    }
    driver_->Stop();
    ready_hooks_.End();
    helper_called_.notify_all();
    leaves_.notify_all();
  }
  Knock(mailbox_->bell());
  if (background_.joinable()) background_.join();
  for (std::thread& thread : group_threads_) {
    if (thread.joinable()) thread.join();
  }
  callbacks_.Close({.finish = true, .patience = std::min(patience, kLastCallbacks), .all = true});
  cancels_.Close({});
  printer_.Close(kLastWords);
  stacks_.Close();
  while (true) {
    {
      Lock lock(*driver_);
      stopped_ = driver_->is_alone();
      driver_->WakeWaiters();
    }
    if (stopped_) return true;
    if (clock_.Now() >= deadline) return false;
    poll(nullptr, 0, 1);
  }
}

void RuntimeImpl::OnTick() {
  CheckRaylet();
  TakeNewRings();
  PublishMetrics();
  callbacks_.Relieve();
  cancels_.Relieve();
  notices_.Tick(clock_.Now());
  printer_.Relieve();
  stacks_.Relieve();
  // What interrupts a call may meet it just before the system call that shall end, and be lost.
  bool busy = core_->executor.queued() != 0;
  core_->executor.ForEachRunning([&](const CallExecution& call) {
    busy = true;
    if (call.cancelled()) OnRunningCancelled(call.task());
  });
  departures_->Tick();
  if (options_.handler != nullptr)  // A driver's memory is its user's.
    (void)heap_.Tick(clock_.Now(), mailbox_->counts().work_frames, busy);
}

// The core counts for itself; the page shows it, a fraction of a second late.
void RuntimeImpl::PublishMetrics() {
  metrics::Page& page = metrics::PageOf(segment_->data());
  PublishCounts(*core_, page);
  page.counter(metrics::CounterId::kDoorbellSleeps)
      .store(driver_->sleeps(), std::memory_order_relaxed);
  metrics::PublishMailbox(mailbox_->counts(), page);
}

// The raylet's death shows as the end of the socket; nothing else comes on it unasked.
void RuntimeImpl::CheckRaylet() {
  const Nanos now = clock_.Now();
  if (driver_->ended()) {
    // User code that still runs works for nobody: its results have no way out, and the next raylet
    // knows nothing of it.
    if (!options_.driver && now - raylet_seen_at_ >= kOrphanGrace) _exit(1);
    return;
  }
  raylet_seen_at_ = now;
  pollfd ready{attached_.socket.fd(), POLLRDHUP, 0};
  if (poll(&ready, 1, 0) > 0 && (ready.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
    EndRaylet("the raylet of this node has ended");
  }
}

void RuntimeImpl::EndRaylet(const std::string& why) {
  if (driver_->ended()) return;
  driver_->End(why);
  ready_hooks_.End();
  Leave();
}

// RunWorker returns.
void RuntimeImpl::Leave() {
  leaving_ = true;
  driver_->WakeWaiters();
  leaves_.notify_all();
  loop_watch_.Leave();
}

}  // namespace sheaf
