// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Carries out commands: each once, in order where they meet, durable before anybody hears of them.
// The tables therefore hold only what is on disk, and a question never sees a write that a crash
// could take back.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/ids.h"
#include "base/transport.h"
#include "gcs/storage/storage.h"
#include "proto/gcs.pb.h"

namespace sheaf {

// One request on its way to its answer.
struct Call {
  ProcessId from;  // The raylet that handed it over: the answer goes there.
  ProcessId client;
  uint64_t sequence = 0;
  bool keep_answer = false;     // A command: a repeat gets the first answer.
  bool durable_answer = false;  // Also after a restart of the GCS.
};
using CallPtr = std::shared_ptr<Call>;

// What a command comes to.
struct Outcome {
  WriteBatch writes;  // Empty: nothing to make durable.
  // Changes the tables and tells others, once the writes are durable. May be empty.
  std::function<void()> apply;
  proto::GcsReply reply;  // Sent after `apply`.
  bool vital = false;     // See Storage::CommitVital.
};

class CommandPipeline {
 public:
  // Answers of one client that are kept at once; a client with more of them unconfirmed is refused.
  static constexpr size_t kMaxAnswersPerClient = 10'000;

  // Both outlive the pipeline; so do all that `plan` and `apply` functions refer to.
  CommandPipeline(Storage& storage, Transport& transport)
      : storage_(storage), transport_(transport) {}

  // A row of Table::kAnswers, before the first request.
  void Load(std::string_view key, std::string_view value);

  // Takes in a request. nullptr: a repeat; it has been answered from memory, is in progress, or is
  // confirmed and dropped.
  CallPtr Admit(ProcessId from, const proto::GcsRequest& request, bool keep_answer,
                bool durable_answer);

  // Runs `plan` once no earlier command with a latch in `latches` is in progress, makes what it
  // says durable, applies it and answers `call` (nullptr: nobody asked). On a full disk nothing is
  // applied, `call` gets kGcsStorageFull and `on_full` (may be empty) is called.
  void Run(CallPtr call, std::vector<std::string> latches, std::function<Outcome()> plan,
           std::function<void()> on_full = nullptr);

  void Answer(const CallPtr& call, proto::GcsReply reply);

  // The process, or all processes of the node, will not ask again.
  void ForgetClient(ProcessId client);
  void ForgetNode(NodeNumber node);
  std::set<ProcessId> ClientsOn(NodeNumber node) const;
  // Deletes forgotten answers from disk, when they are many; else the next command does it in
  // passing.
  void Tick();

  uint64_t repeats() const { return repeats_; }
  uint64_t errors() const { return errors_; }  // Answers that said no.
  uint64_t commits() const { return commits_; }
  size_t in_progress() const { return in_progress_; }

 private:
  struct Kept {
    CallPtr call;
    std::string reply;  // Serialized; empty: in progress.
  };
  struct Client {
    uint64_t confirmed = 0;
    bool on_disk = false;
    std::map<uint64_t, Kept> answers;
  };
  struct Command {
    CallPtr call;
    std::vector<std::string> latches;
    size_t waiting = 0;  // Latches that an earlier command holds.
    std::function<Outcome()> plan;
    std::function<void()> on_full;
  };
  using CommandPtr = std::shared_ptr<Command>;

  void Start(const CommandPtr& command);
  void Finish(const CommandPtr& command, const std::shared_ptr<Outcome>& outcome);
  void Release(const CommandPtr& command);
  void Confirm(Client& client, ProcessId id, uint64_t confirmed_up_to);
  void ForgetRows(ProcessId id, const Client& client);
  void CommitWithForgotten(WriteBatch writes, Storage::Done done);
  void Commit(WriteBatch writes, bool vital, Storage::Done done);
  void Send(const Call& call, std::string_view reply);

  Storage& storage_;
  Transport& transport_;
  std::map<ProcessId, Client> clients_;
  absl::flat_hash_map<std::string, std::deque<CommandPtr>> latches_;  // The first of each holds it.
  std::deque<CommandPtr> ready_;                                      // Hold all their latches.
  bool starting_ = false;
  WriteBatch forgotten_;  // Rides with the next commit.
  uint64_t repeats_ = 0;
  uint64_t errors_ = 0;
  uint64_t commits_ = 0;
  size_t in_progress_ = 0;
};

}  // namespace sheaf
