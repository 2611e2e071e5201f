// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One training run, in the driver: forms the group, collects reports, and forms it anew when a
// worker or node is lost. A step is recorded when all workers have reported it, so what is recorded
// has no gaps; when the group goes on from a checkpoint, what was recorded behind it is cut off
// first, so nothing is there twice.
#include "api/core.h"

#include "sheaf/train.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "api/process.h"
#include "api/train_files.h"
#include "api/train_members.h"
#include "api/train_worker.h"

namespace sheaf::inline v1::train {
namespace internal {
namespace {

// How long a healthy worker may take to leave its function; then its process is ended too.
constexpr Nanos kStop = 3 * kSecond;
constexpr Nanos kStopAgain = 100 * kMillisecond;
constexpr std::chrono::seconds kAnswer{30};  // Of a worker that has said that it has ended.

struct Failure {
  ErrorInfo error;
  bool died = false;        // Else its function threw.
  bool collective = false;  // ... because another one is lost.
};

// The group from when it is formed until it is taken apart.
struct Epoch {
  uint64_t number = 0;
  std::vector<Process> processes;          // By rank.
  std::vector<ObjectRef<void>> functions;  // What Run returns.
  std::map<int, ObjectRef<Taken>> takes;   // Calls under way.
  std::vector<Nanos> heard;
  std::vector<uint64_t> said;  // How many steps each has reported.
  std::set<int> running;
  std::set<int> finished;  // Came to their end by themselves; they report no more.
  std::map<int, Failure> failures;
  std::map<uint64_t, std::map<int, Report>> reports;  // By number and rank.

  void Take(int rank) {
    const ActorHandle<TrainWorker>& actor = processes[static_cast<size_t>(rank)].actor;
    takes[rank] = actor.Task(&TrainWorker::Take).Remote(number, true);
  }
  // The rank whose failure explains the others: a death, else what a function threw by itself.
  int FirstCause() const {
    const auto weight = [](const auto& failure) {
      return failure.second.died ? 0 : failure.second.collective ? 2 : 1;
    };
    return std::min_element(failures.begin(), failures.end(),
                            [&](const auto& a, const auto& b) { return weight(a) < weight(b); })
        ->first;
  }
};

// The last line, without the name of the actor that is dead.
std::string Briefly(const std::string& error) {
  constexpr std::string_view kDead = " is dead: ";
  const size_t dead = error.find(kDead);
  const std::string text = dead == std::string::npos ? error : error.substr(dead + kDead.size());
  const size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "no reason given";
  const size_t begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - begin);
}

}  // namespace

class TrainingRun {
 public:
  explicit TrainingRun(Options options) : options_(std::move(options)) {
    if (options_.workers < 1) {
      throw InvalidArgumentError(
          absl::StrCat("train::Options::workers is ", options_.workers, ": want at least 1"));
    }
    if (std::all_of(options_.resources.begin(), options_.resources.end(),
                    [](const auto& resource) { return resource.second <= 0; })) {
      throw InvalidArgumentError(
          "train::Options::resources: a worker needs at least one resource, as {{\"CPU\", 1}}");
    }
  }

  Result Go(const Loop& loop, const std::optional<ObjectRef<char>>& config) {
    loop_name_ = loop.name;
    result_ = {};
    begin_ = MonotonicNow();
    lost_at_ = 0;
    files_.emplace(options_.folder, options_.keep_checkpoints);
    members_.emplace(options_);
    const auto close = [this] {
      members_.reset();
      epoch_.reset();
      Gather();
    };
    try {
      files_->Open();
      if (!files_->history().empty())
        Happened(
            absl::StrCat("goes on behind step ", files_->history().size(), " of a former run"));
      Train(loop, config);
    } catch (...) {
      close();
      throw;
    }
    close();
    return std::move(result_);
  }

  std::vector<Member> members() const {
    std::vector<Member> members;
    if (epoch_ == nullptr) return members;
    for (const Process& process : epoch_->processes)
      members.push_back({static_cast<int>(members.size()), process.place.node, process.place.pid});
    return members;
  }

 private:
  void Train(const Loop& loop, const std::optional<ObjectRef<char>>& config) {
    for (int failures = 0;; ++failures) {
      if (failures > 0) files_->Rollback();
      Begin(static_cast<uint64_t>(failures), loop, config);
      if (Follow()) return;
      if (options_.max_failures >= 0 && failures >= options_.max_failures) GiveUp();
    }
  }

  // Forms the group and starts the functions.
  void Begin(uint64_t number, const Loop& loop, const std::optional<ObjectRef<char>>& config) {
    int begun = 0;
    try {
      begun = members_->Form();
    } catch (const TrainingError& error) {
      Gather();
      throw TrainingError(error.what(), error.rank(), error.cause(), result_);
    }
    epoch_ = std::make_unique<Epoch>();
    epoch_->number = number;
    epoch_->processes = members_->by_rank();
    const size_t count = epoch_->processes.size();
    const uint64_t steps = files_->history().size();
    const std::optional<Checkpoint> checkpoint = files_->newest();
    epoch_->heard.assign(count, MonotonicNow());
    epoch_->said.assign(count, steps);
    for (size_t rank = 0; rank < count; ++rank) {
      Start start;
      start.epoch = number;
      start.rank = static_cast<int>(rank);
      start.world_size = static_cast<int>(count);
      members_->Locate(start);
      start.steps = steps;
      start.folder =
          options_.folder.empty() ? "" : std::filesystem::absolute(options_.folder).string();
      if (checkpoint.has_value())
        start.checkpoint = std::filesystem::absolute(checkpoint->folder()).string();
      start.group = absl::StrCat("train:", epoch_->processes[0].actor.id(), ":", number);
      start.group_timeout = options_.collective.timeout.count();
      start.formation_timeout = options_.collective.formation_timeout.count();
      start.arena_bytes = options_.collective.arena_bytes;
      start.loop = loop.key;
      start.config = config;
      // Calls of one caller begin in order, but in different threads: Run and Take come when the
      // session is there.
      const ActorHandle<TrainWorker>& actor = epoch_->processes[rank].actor;
      const ObjectRef<bool> prepared = actor.Task(&TrainWorker::Prepare).Remote(start);
      epoch_->functions.push_back(actor.Task(&TrainWorker::Run).Remote(prepared));
      epoch_->takes[start.rank] = actor.Task(&TrainWorker::Take).Remote(number, prepared);
      epoch_->running.insert(start.rank);
    }
    Happened(absl::StrCat(
        count, " workers on ", members_->nodes(), members_->nodes() == 1 ? " node (" : " nodes (",
        static_cast<int>(count) - begun, " kept, ", begun, " new) begin from ",
        checkpoint.has_value()
            ? absl::StrCat(checkpoint->folder().filename().string(), ", step ", steps)
            : std::string("the start")));
  }

  // Until all functions have returned (true), or the group must be formed anew; then none runs.
  bool Follow() {
    while (!epoch_->running.empty() && epoch_->failures.empty()) {
      Hear(kSecond);
      Commit();
      LookForSilence();
    }
    if (epoch_->failures.empty()) {
      if (lost_at_ != 0) Recovered("all is done");
      return true;
    }
    lost_at_ = lost_at_ == 0 ? MonotonicNow() : lost_at_;
    TakeApart();
    Commit();
    const int first = epoch_->FirstCause();
    for (const auto& [rank, failure] : epoch_->failures) {
      if (rank != first && failure.collective) continue;  // It says that the other is lost.
      Happened(absl::StrCat(
          "rank ", rank, " (pid ", epoch_->processes[static_cast<size_t>(rank)].place.pid, ") ",
          failure.died ? "is lost: " : "failed: ", Briefly(failure.error.message)));
    }
    return false;
  }

  // Takes what workers have to say.
  void Hear(Nanos timeout) {
    std::vector<ObjectRef<Taken>> calls;
    for (const auto& [rank, call] : epoch_->takes) calls.push_back(call);
    const std::vector<ObjectRef<Taken>> ready =
        Wait(std::move(calls), 1, std::chrono::nanoseconds(timeout)).ready;
    for (const ObjectRef<Taken>& call : ready) {
      const int rank =
          std::find_if(epoch_->takes.begin(), epoch_->takes.end(), [&](const auto& at) {
            return at.second == call;
          })->first;
      epoch_->takes.erase(rank);
      const sheaf::Result<Taken> taken = TryGet(call);
      if (!taken.ok()) {
        Lost(rank, taken.error());
      } else {
        Heard(rank, *taken);
      }
    }
  }

  void Heard(int rank, const Taken& taken) {
    const size_t at = static_cast<size_t>(rank);
    for (const Report& report : taken.reports) {
      epoch_->reports[report.number][rank] = report;
      epoch_->said[at] = report.number + 1;
    }
    epoch_->heard[at] = MonotonicNow();
    if (!taken.ended) {
      epoch_->Take(rank);
      return;
    }
    epoch_->running.erase(rank);
    if (taken.stopped) return;
    const sheaf::Result<void> returned = TryGet(epoch_->functions[at], kAnswer);
    if (returned.ok()) {
      epoch_->finished.insert(rank);
    } else if (returned.kind() == ErrorKind::kTaskCancelled) {
      return;  // By TakeApart, whose Stop had not come yet.
    } else if (returned.kind() == ErrorKind::kTaskFailed) {
      ErrorInfo error = returned.error();
      error.function = loop_name_;  // Which this side knows better.
      if (!error.cause_type.empty())
        error.message = loop_name_ + " threw " + error.cause_type + ": " + error.cause_message;
      epoch_->failures.try_emplace(rank, Failure{std::move(error), false, taken.collective});
    } else {
      Lost(rank, returned.error());
    }
  }

  void Lost(int rank, const ErrorInfo& error) {
    epoch_->running.erase(rank);
    epoch_->failures.try_emplace(rank, Failure{error, true, false});
  }

  // Records the steps that all have reported.
  void Commit() {
    for (;;) {
      const uint64_t number = files_->history().size();
      const auto found = epoch_->reports.find(number);
      if (found == epoch_->reports.end()) return;
      const std::map<int, Report>& said = found->second;
      for (int rank = 0; rank < static_cast<int>(epoch_->processes.size()); ++rank) {
        if (!said.contains(rank) && !epoch_->finished.contains(rank)) return;
      }
      Record(number, said);
      epoch_->reports.erase(number);
    }
  }

  void Record(uint64_t number, const std::map<int, Report>& said) {
    const auto saved = std::find_if(said.begin(), said.end(), [](const auto& report) {
      return !report.second.incomplete.empty();
    });
    const Row row{number + 1, SinceBegin(), said.begin()->second.metrics};
    files_->Record(row, saved == said.end() ? "" : saved->second.incomplete);
    if (saved != said.end()) {
      for (const Process& process : epoch_->processes)
        process.actor.Task(&TrainWorker::Commit).Remote(epoch_->number, number + 1);
    }
    if (lost_at_ != 0 && epoch_->failures.empty())
      Recovered(absl::StrCat("step ", number + 1, " is done"));
    if (options_.on_step) options_.on_step(row);
  }

  void Recovered(const std::string& what) {
    result_.recoveries.push_back(Seconds(MonotonicNow() - std::exchange(lost_at_, 0)));
    Happened(absl::StrFormat("%s, %.2f s after the loss", what, result_.recoveries.back()));
  }

  void LookForSilence() {
    const Nanos bound = options_.silence_timeout.count();
    const std::set<int> running = epoch_->running;
    for (const int rank : running) {
      if (MonotonicNow() - epoch_->heard[static_cast<size_t>(rank)] < bound) continue;
      ErrorInfo error;
      error.kind = ErrorKind::kTimeout;
      error.message =
          absl::StrCat("no answer for ", Seconds(bound), " s (train::Options::silence_timeout)");
      Lost(rank, error);
    }
  }

  // Stops the functions that run, and ends the processes that are dead or do not stop. Further
  // failures are added.
  void TakeApart() {
    const Nanos deadline = MonotonicNow() + kStop;
    while (!epoch_->running.empty() && MonotonicNow() < deadline) {
      for (const int rank : std::set<int>(epoch_->running)) {
        const size_t at = static_cast<size_t>(rank);
        // Again and again: the first may come before there is a session.
        epoch_->processes[at].actor.Task(&TrainWorker::Stop).Remote(epoch_->number);
        Cancel(epoch_->functions[at]);  // Ends waits: in Get, or for the others of the group.
        if (IsReady(epoch_->functions[at]) &&
            TryGet(epoch_->functions[at]).kind() == ErrorKind::kTaskCancelled)
          epoch_->running.erase(rank);  // It had not begun.
      }
      if (!epoch_->running.empty()) Hear(kStopAgain);
    }
    for (const int rank : epoch_->running)
      members_->End(epoch_->processes[static_cast<size_t>(rank)]);
    for (const auto& [rank, failure] : epoch_->failures) {
      if (failure.died) members_->End(epoch_->processes[static_cast<size_t>(rank)]);
    }
  }

  [[noreturn]] void GiveUp() {
    const int rank = epoch_->FirstCause();
    const Failure& cause = epoch_->failures.at(rank);
    const std::string text = absl::StrCat(
        "rank ", rank, " of ", epoch_->processes.size(), cause.died ? " died" : " failed",
        " at step ", epoch_->said[static_cast<size_t>(rank)] + 1, ": ",
        Briefly(cause.error.message), " (train::Options::max_failures=", options_.max_failures,
        " allows no more)");
    Happened(text);
    Gather();
    throw TrainingError(text, rank, cause.error, result_);
  }

  void Gather() {
    result_.history = files_->history();
    result_.checkpoint = files_->newest();
  }

  void Happened(std::string text) {
    result_.events.push_back({SinceBegin(), files_->history().size(), std::move(text)});
    if (options_.on_event) options_.on_event(result_.events.back());
  }

  static double Seconds(Nanos duration) { return static_cast<double>(duration) / 1e9; }
  double SinceBegin() const { return Seconds(MonotonicNow() - begin_); }

  const Options options_;
  std::optional<RunFiles> files_;
  std::optional<TrainMembers> members_;
  std::unique_ptr<Epoch> epoch_;
  std::string loop_name_;
  Result result_;
  Nanos begin_ = 0;
  Nanos lost_at_ = 0;  // When a loss was noticed, until the next step is recorded.
};

GroupRunner::GroupRunner(Options options)
    : run_(std::make_unique<TrainingRun>(std::move(options))) {}
GroupRunner::~GroupRunner() = default;
Result GroupRunner::Run(const Loop& loop, const std::optional<ObjectRef<char>>& config) {
  return run_->Go(loop, config);
}
std::vector<Member> GroupRunner::members() const { return run_->members(); }

}  // namespace internal

TrainingError::TrainingError(std::string message, std::optional<int> rank, ErrorInfo cause,
                             Result result)
    : Error(ErrorInfo{cause.kind == ErrorKind::kNone ? ErrorKind::kSystem : cause.kind,
                      std::move(message),
                      {},
                      {},
                      {}}),
      rank_(rank),
      cause_(std::make_shared<const ErrorInfo>(std::move(cause))),
      result_(std::make_shared<const Result>(std::move(result))) {}
TrainingError::~TrainingError() = default;

}  // namespace sheaf::inline v1::train
