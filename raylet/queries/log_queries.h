// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Questions about logs. A node answers for its own; of another's its raylet is asked, whatever of
// the two is slow or dies meanwhile. So many are open at once, as each may have a MiB of answer: who
// asks more is told to come again. Pure; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/container/btree_map.h"
#include "base/clock.h"
#include "base/error_kind.h"
#include "base/ids.h"
#include "base/transport.h"
#include "proto/raylet.pb.h"
#include "raylet/logs/node_logs.h"
#include "raylet/node_tables.h"
#include "raylet/workers/worker_pool.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

inline constexpr size_t kMaxOpenLogQueries = 32;

class LogQueries {
 public:
  // All outlive it.
  struct Deps {
    NodeNumber node;
    Nanos limit;  // An answer has so long.
    Clock& clock;
    Transport& transport;
    const ClusterView& view;
    const AttachedProcesses& processes;
    const WorkerPool& pool;
    std::function<bool(const std::string& submission_id)> runs_entrypoint;
    std::function<bool(NodeNumber)> is_node_dead;
    NodeLogs* logs;  // nullptr: this node keeps none.
  };
  // `first`: the number of the first question to another node. Their answers are told from those to
  // other queries by it.
  LogQueries(Deps deps, uint64_t first) : deps_(std::move(deps)), last_query_(first) {}
  LogQueries(const LogQueries&) = delete;
  LogQueries& operator=(const LogQueries&) = delete;

  static bool IsAboutLogs(const proto::StateQuery& query) {
    return query.what() == proto::StateQuery::LOG_LIST ||
           query.what() == proto::StateQuery::LOG_READ;
  }
  // Of a process of this node, or of another raylet.
  void OnQuery(ProcessId from, proto::StateQuery query);
  // False: this asked for no such answer.
  bool OnAnswer(ProcessId from, proto::StateAnswer& answer);
  // The raylet of a node is gone: it will not answer.
  void Forget(ProcessId raylet);
  // Answers what has waited for too long.
  void Tick();

 private:
  struct Query {
    ProcessId asker;
    uint64_t request = 0;  // Of the asker.
    NodeNumber node = 0;   // Whose logs.
    Nanos deadline = 0;
    bool writer_has_ended = false;
  };
  void Answer(ProcessId asker, uint64_t request, proto::StateAnswer answer);
  void Refuse(ProcessId asker, uint64_t request, ErrorKind kind, const std::string& words);
  void Finish(uint64_t number, proto::StateAnswer answer);
  void AskHere(uint64_t number, const proto::StateQuery& query);
  void AskNode(uint64_t number, proto::StateQuery query);
  // Whether who wrote the log of this node has ended.
  bool HasWriterEnded(std::string_view name) const;

  const Deps deps_;
  absl::btree_map<uint64_t, Query> queries_;
  uint64_t last_query_;
};

}  // namespace sheaf
