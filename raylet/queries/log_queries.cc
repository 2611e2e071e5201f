// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/queries/log_queries.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "raylet/logs/log_names.h"

namespace sheaf {
namespace {

// Of a connection that does not take what it has asked for.
constexpr size_t kMaxUnread = 8 << 20;

std::string DeathWords(NodeNumber node) {
  return absl::StrCat("node ", node, " has died, and its logs cannot be had through the cluster");
}

}  // namespace

void LogQueries::OnQuery(ProcessId from, proto::StateQuery query) {
  const uint64_t request = query.request();
  if (queries_.size() >= kMaxOpenLogQueries ||
      deps_.transport.To(from).queued_bytes() > kMaxUnread) {
    return Refuse(from, request, ErrorKind::kPendingCallsLimit,
                  absl::StrCat("node ", deps_.node, " is asked for too many logs; ask again"));
  }
  const NodeNumber node = query.log().node() == 0 ? deps_.node : query.log().node();
  if (node != deps_.node) {
    if (from.node != deps_.node) {
      return Refuse(from, request, ErrorKind::kInvalidArgument,
                    absl::StrCat("this is node ", deps_.node, ", not ", node));
    }
    const NodeView* const seen = deps_.view.Find(node);
    if (seen == nullptr || !seen->alive) {
      const bool died = deps_.is_node_dead(node);
      return Refuse(from, request, died ? ErrorKind::kNodeDied : ErrorKind::kNotFound,
                    died ? DeathWords(node) : absl::StrCat("there is no node ", node));
    }
  }
  const uint64_t number = ++last_query_;
  queries_[number] = {.asker = from,
                      .request = request,
                      .node = node,
                      .deadline = Deadline(deps_.clock.Now(), deps_.limit)};
  if (node == deps_.node) {
    AskHere(number, query);
  } else {
    AskNode(number, std::move(query));
  }
}

void LogQueries::AskHere(uint64_t number, const proto::StateQuery& query) {
  if (deps_.logs == nullptr) {
    proto::StateAnswer none;
    none.set_error(absl::StrCat("node ", deps_.node, " keeps no logs"));
    none.set_error_kind(static_cast<uint32_t>(ErrorKind::kNotFound));
    return Finish(number, std::move(none));
  }
  // Before the file is read: then all that it wrote is there.
  queries_[number].writer_has_ended = HasWriterEnded(query.log().name());
  deps_.logs->Ask(query, [this, number](proto::StateAnswer answer) {
    const auto found = queries_.find(number);
    if (found == queries_.end()) return;
    if (answer.has_log()) answer.mutable_log()->set_ended(found->second.writer_has_ended);
    Finish(number, std::move(answer));
  });
}

void LogQueries::AskNode(uint64_t number, proto::StateQuery query) {
  query.set_request(number);
  SendMessage(deps_.transport.To(RayletOf(queries_[number].node)), FrameKind::kStateQuery, query);
}

bool LogQueries::HasWriterEnded(std::string_view name) const {
  if (const auto worker = WorkerOfLog(name)) return deps_.pool.Find(*worker) == nullptr;
  if (const auto submission = SubmissionOfLog(name)) return !deps_.runs_entrypoint(*submission);
  return false;
}

bool LogQueries::OnAnswer(ProcessId from, proto::StateAnswer& answer) {
  const auto found = queries_.find(answer.request());
  if (found == queries_.end() || from != RayletOf(found->second.node) ||
      found->second.node == deps_.node)
    return false;
  Finish(found->first, std::move(answer));
  return true;
}

void LogQueries::Finish(uint64_t number, proto::StateAnswer answer) {
  const auto found = queries_.find(number);
  const Query query = found->second;
  queries_.erase(found);
  Answer(query.asker, query.request, std::move(answer));
}

void LogQueries::Answer(ProcessId asker, uint64_t request, proto::StateAnswer answer) {
  const bool gone =
      asker.node == deps_.node ? !deps_.processes.contains(asker) : deps_.is_node_dead(asker.node);
  if (gone) return;
  answer.set_request(request);
  SendMessage(deps_.transport.To(asker), FrameKind::kStateAnswer, answer);
}

void LogQueries::Refuse(ProcessId asker, uint64_t request, ErrorKind kind,
                        const std::string& words) {
  proto::StateAnswer answer;
  answer.set_error(words);
  answer.set_error_kind(static_cast<uint32_t>(kind));
  Answer(asker, request, std::move(answer));
}

void LogQueries::Forget(ProcessId raylet) {
  std::vector<uint64_t> lost;
  for (const auto& [number, query] : queries_) {
    if (RayletOf(query.node) == raylet) lost.push_back(number);
  }
  for (const uint64_t number : lost) {
    const Query query = queries_[number];
    queries_.erase(number);
    Refuse(query.asker, query.request, ErrorKind::kNodeDied, DeathWords(query.node));
  }
}

void LogQueries::Tick() {
  std::vector<uint64_t> late;
  for (const auto& [number, query] : queries_) {
    if (deps_.clock.Now() >= query.deadline) late.push_back(number);
  }
  for (const uint64_t number : late) {
    const Query query = queries_[number];
    queries_.erase(number);
    Refuse(query.asker, query.request, ErrorKind::kTimeout,
           absl::StrCat("node ", query.node, " does not answer"));
  }
}

}  // namespace sheaf
