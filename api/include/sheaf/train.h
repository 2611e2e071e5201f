// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Training by a group of workers that survives losing some of them.
//
//   void Fit(sheaf::train::Worker& worker, const Settings& settings) {  // Runs in each worker.
//     State state;  // The weights, and the step.
//     if (worker.checkpoint()) state = worker.checkpoint()->Read<State>("state");
//     while (state.step < settings.steps) {
//       std::vector<float> gradients = Differentiate(state, worker.rank(), worker.world_size());
//       worker.group().AllReduce(gradients, sheaf::collective::Op::kAverage);
//       Descend(state, gradients);
//       worker.Report({{"loss", state.loss}}, [&](sheaf::train::Checkpoint& to) {
//         if (worker.rank() == 0) to.Write("state", state);
//       });
//     }
//   }
//
//   sheaf::train::WorkerGroup<Fit> group({.workers = 4, .folder = "/data/run", .max_failures = 3});
//   sheaf::train::Result result = group.Run(Settings{.steps = 1000});
// When a worker or its node dies, the others keep their processes, a new one takes its place, and
// the function begins again on all of them with the newest checkpoint.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sheaf/collective.h"
#include "sheaf/placement.h"
#include "sheaf/sheaf.h"

namespace sheaf::inline v1::train {

// Numbers of a step, by their names.
using Metrics = std::map<std::string, double>;

// A folder of files that training goes on from. Its functions throw SystemError with the name of a
// file that cannot be read or written.
class Checkpoint {
 public:
  // `folder` is there.
  explicit Checkpoint(std::filesystem::path folder) : folder_(std::move(folder)) {}
  // Where it lies.
  const std::filesystem::path& folder() const { return folder_; }

  // A value (sheaf/serialize.h) in a file of its own. Files of any other kind go into folder() by
  // any other means.
  template <class T>
  void Write(const std::string& file, const T& value) {
    WriteBytes(file, Serialize(value));
  }
  // Throws SerializationError: the file holds no T.
  template <class T>
  T Read(const std::string& file) const {
    return Deserialize<T>(ReadBytes(file));
  }

 private:
  SHEAF_API void WriteBytes(const std::string& file, const std::string& bytes);
  SHEAF_API std::string ReadBytes(const std::string& file) const;
  std::filesystem::path folder_;
};
// Writes a checkpoint.
using SaveFunction = std::function<void(Checkpoint&)>;

namespace internal {
class Session;
}

// What a training function is given: its place in the group, and how it reports. Thread-safe. It
// must not be used after the function has returned.
class Worker {
 public:
  // Made by WorkerGroup.
  explicit Worker(internal::Session& session) : session_(session) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Its place in the group, from 0, and how many workers there are.
  SHEAF_API int rank() const;
  SHEAF_API int world_size() const;
  // The same among the workers of this node.
  SHEAF_API int local_rank() const;
  SHEAF_API int local_world_size() const;
  SHEAF_API int node_rank() const;   // Nodes count from 0; ranks of one node follow each other.
  SHEAF_API uint64_t epoch() const;  // How often the group was formed before.
  SHEAF_API uint64_t steps() const;  // How many steps were recorded when this function began.
  // The newest checkpoint when this function began; none: begin from the start.
  SHEAF_API const std::optional<Checkpoint>& checkpoint() const;
  // The group of all workers, for collectives; formed when each of them first asks for it.
  SHEAF_API collective::Group& group();

  // Ends a step. Each worker calls it equally often; rank 0's metrics are recorded. With `save`, on
  // some or all ranks, it returns when all ranks have reported the step and the checkpoint is on
  // disk; the ranks write into one folder. Throws InvalidArgumentError (a metric's name, or no
  // Options::folder), SystemError (the disk), and what `save` throws; and, while the group is
  // formed anew, something that is no std::exception and must be let through.
  SHEAF_API void Report(const Metrics& metrics, const SaveFunction& save = nullptr);
  // Whether the function should return soon; for code that neither reports nor uses the group for
  // seconds.
  SHEAF_API bool stopping() const;

 private:
  internal::Session& session_;
};

// A step that all workers have reported.
struct Row {
  uint64_t step = 0;   // From 1.
  double seconds = 0;  // Since the run began.
  Metrics metrics{};   // Rank 0's.
};
// Something that happened to the group.
struct Event {
  double seconds = 0;  // Since the run began.
  uint64_t steps = 0;  // How many were recorded.
  std::string text{};
};
// What is known of the process of one rank.
struct Member {
  int rank = 0;
  uint32_t node = 0;  // Its number.
  int pid = 0;
};

// How a group trains.
struct Options {
  int workers = 1;                          // How many.
  Bundle resources{{"CPU", 1}};             // Of each.
  GroupPolicy policy = GroupPolicy::kPack;  // How they lie on nodes.
  // Of checkpoints and of the history; all workers see it. A run in the folder of an earlier one
  // goes on from its newest checkpoint. Empty: there are no checkpoints, and a loss begins anew.
  std::filesystem::path folder{};
  int keep_checkpoints = 0;  // The newest; 0: all.
  int max_failures = 0;      // How often the group is formed anew; -1: without bound.
  std::chrono::nanoseconds placement_timeout = std::chrono::seconds(60);
  // A worker that does not answer for so long counts as dead, and is ended.
  std::chrono::nanoseconds silence_timeout = std::chrono::seconds(60);
  collective::GroupOptions collective{};             // Of Worker::group.
  std::map<std::string, std::string> environment{};  // Variables of the workers.
  // In the thread of Run, at once. A step behind the newest checkpoint comes again after a loss.
  std::function<void(const Row&)> on_step{};
  std::function<void(const Event&)> on_event{};
};

// What a run has reached.
struct Result {
  std::vector<Row> history{};              // Each step once, in order.
  std::optional<Checkpoint> checkpoint{};  // The newest.
  std::vector<Event> events{};
  std::vector<double> recoveries{};  // Of each loss: seconds until the next step, or the end.
};

// The workers failed more often than Options allows, or could not be placed.
class SHEAF_API TrainingError : public Error {
 public:
  // Made by WorkerGroup.
  TrainingError(std::string message, std::optional<int> rank, ErrorInfo cause, Result result);
  ~TrainingError() override;
  // The rank of the worker that failed first; none: it is nobody's fault.
  std::optional<int> rank() const noexcept { return rank_; }
  // What that worker failed with, and what had been reached; valid while this object lives.
  const ErrorInfo& cause() const noexcept { return *cause_; }
  const Result& result() const noexcept { return *result_; }

 private:
  std::optional<int> rank_;
  std::shared_ptr<const ErrorInfo> cause_;
  std::shared_ptr<const Result> result_;
};

namespace internal {

// A training function as other processes find it. Registered before main.
struct Loop {
  std::string key;
  std::string name;
  void (*run)(Worker& worker, const std::optional<ObjectRef<char>>& config);
};
SHEAF_API void RegisterLoop(const Loop* loop);

class SHEAF_API GroupRunner {
 public:
  explicit GroupRunner(Options options);
  ~GroupRunner();
  Result Run(const Loop& loop, const std::optional<ObjectRef<char>>& config);
  std::vector<Member> members() const;

 private:
  std::unique_ptr<class TrainingRun> run_;
};

}  // namespace internal

// Runs `kFunction` in a group of actors on one placement group: a function of a Worker, or of a
// Worker and one argument more. Used by one thread at a time.
template <auto kFunction, class Type = decltype(kFunction)>
class WorkerGroup {
  static_assert(std::is_void_v<Type>,
                "sheaf::train::WorkerGroup<Function>: want void Function(sheaf::train::Worker&) or "
                "void Function(sheaf::train::Worker&, const Config&)");
};
// The same of a function that has the right parameters.
template <auto kFunction, class... Config>
class WorkerGroup<kFunction, void (*)(Worker&, Config...)> {
  static_assert(sizeof...(Config) <= 1, "sheaf::train: put all settings into one struct");

 public:
  // Starts nothing yet. Throws InvalidArgumentError for options that mean nothing.
  explicit WorkerGroup(Options options) : runner_(std::move(options)) {}

  // Returns when the function has returned in all workers. `config` is read by all of them, so
  // references and arrays in it are shared. Throws TrainingError, SystemError (the disk), and what
  // on_step and on_event throw.
  Result Run(const std::remove_cvref_t<Config>&... config) {
    std::optional<ObjectRef<char>> shared;
    ((shared = ObjectRef<char>::FromHandle(Put(config).handle())), ...);
    return runner_.Run(*kLoop, shared);
  }
  // The workers by rank, while Run runs: for on_step and on_event.
  std::vector<Member> members() const { return runner_.members(); }

 private:
  static void Call(Worker& worker, const std::optional<ObjectRef<char>>& config) {
    (void)config;
    kFunction(worker,
              Get(ObjectRef<std::remove_cvref_t<Config>>::FromHandle(config.value().handle()))...);
  }
  static const internal::Loop* Register() {
    static const std::string name = sheaf::internal::NameOf<kFunction>();
    static const internal::Loop loop{sheaf::internal::KeyOf<void(Config...)>(name), name, &Call};
    internal::RegisterLoop(&loop);
    return &loop;
  }
  static inline const internal::Loop* const kLoop = Register();  // In every process, before main.

  internal::GroupRunner runner_;
};

}  // namespace sheaf::inline v1::train
