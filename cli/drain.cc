// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/drain.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text/json.h"

namespace sheaf::cli {
namespace {

constexpr Nanos kLookAgain = 100 * kMillisecond;
// A GCS that does not answer for so long is gone for good, as with a cluster that is taken down: a
// node that is to leave then goes by what it knows itself.
constexpr Nanos kLeavesAlone = 5 * kSecond;

absl::StatusOr<NodeNumber> NodeOf(const DrainOptions& options) {
  NodeNumber number = 0;
  if (options.node != kDrainSelf) {
    if (absl::SimpleAtoi(options.node, &number) && number != 0) return number;
    return absl::InvalidArgumentError(
        absl::StrCat("'", options.node, "': want the number of a node, or ", kDrainSelf));
  }
  SHEAF_ASSIGN_OR_RETURN(const RunningNode self, FindNode(options.query));
  number = NumberOf(self);
  if (number != 0) return number;
  return absl::UnavailableError(absl::StrCat(self.session, ": the node has no number yet"));
}

struct Seen {
  std::string state;      // "DEAD" also when nobody remembers the node.
  bool own_word = false;  // The node itself says it: the GCS, which knows, does not answer.
};

// What the cluster says of `node`. kUnavailable: the GCS does not answer now, and another node is
// asked.
absl::StatusOr<Seen> StateOf(const QueryOptions& options, NodeNumber node) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::NODES);
  const absl::StatusOr<proto::StateAnswer> answer = Ask(options, query);
  if (!answer.ok()) return answer.status();
  if (!answer->error().empty()) return absl::UnavailableError(answer->error());
  for (const proto::NodeRow& row : answer->nodes()) {
    if (row.node() == node) return Seen{row.state(), answer->truncated()};
  }
  if (answer->truncated()) {
    return absl::UnavailableError(
        absl::StrCat("the GCS does not answer: what runs on node ", node, " is not known"));
  }
  return Seen{"DEAD"};
}

// Says that `node` shall take no new work. kInternal: it is refused. kUnavailable: the GCS, or the
// node that is asked, is away.
absl::Status Order(const QueryOptions& options, NodeNumber node) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::DRAIN);
  query.set_id(absl::StrCat(node));
  const absl::StatusOr<proto::StateAnswer> answer = Ask(options, query);
  if (!answer.ok()) return answer.status();
  if (answer->error().empty()) return absl::OkStatus();
  return answer->truncated() ? absl::UnavailableError(answer->error())
                             : absl::InternalError(answer->error());
}

int ComplainOfTime(NodeNumber node, const absl::Status& last) {
  const std::string why =
      last.ok() ? absl::StrCat("work runs on node ", node,
                               " even now; sheaf list workers shows it, and sheaf stop on that "
                               "node ends it")
                : std::string(last.message());
  Complain(absl::DeadlineExceededError(why));
  return kTimedOut;
}

bool NothingRuns(const std::string& state) { return state == "DRAINED" || state == "DEAD"; }

void Print(bool json, NodeNumber node, const Seen& seen) {
  if (json) {
    std::printf("%s\n", JsonObject()
                            .Add("node", JsonNumber(uint64_t{node}))
                            .Add("state", JsonString(seen.state))
                            .Add("by", JsonString(seen.own_word ? "node" : "cluster"))
                            .Done()
                            .c_str());
  } else if (NothingRuns(seen.state)) {
    std::printf("Node %u is %s%s: nothing runs there, it may be stopped.\n", node,
                seen.state.c_str(), seen.own_word ? ", as it says itself (the GCS is away)" : "");
  } else {
    std::printf("Node %u takes no new work; what runs there goes on to its end.\n", node);
  }
}

// One drain: an order, then a look at what runs.
class Drain {
 public:
  Drain(const DrainOptions& options, NodeNumber node) : options_(options), node_(node) {}

  // The exit code; nullopt: it is to be tried again.
  std::optional<int> Try() {
    if (!ordered_) last_ = Order(options_.query, node_);
    ordered_ = last_.ok();
    if (!ordered_) return NotOrdered();
    silent_since_ = kForever;
    const absl::StatusOr<Seen> seen = StateOf(options_.query, node_);
    if (!seen.ok() && !options_.wait.has_value()) return Complain(seen.status());
    if (seen.ok() && (!options_.wait.has_value() || NothingRuns(seen->state))) return Done(*seen);
    last_ = seen.ok() ? absl::OkStatus() : seen.status();
    return std::nullopt;
  }
  const absl::Status& last() const { return last_; }

 private:
  // Who waits does so for a GCS that is away, too: it may be started anew just then.
  std::optional<int> NotOrdered() {
    const bool may_pass = absl::IsUnavailable(last_) || absl::IsDeadlineExceeded(last_);
    if (!may_pass || !options_.wait.has_value()) {
      const int code = Complain(last_);
      return absl::IsInternal(last_) || absl::IsUnavailable(last_) ? kNotThere : code;
    }
    silent_since_ = std::min(silent_since_, MonotonicNow());
    if (MonotonicNow() - silent_since_ < kLeavesAlone) return std::nullopt;
    const absl::StatusOr<Seen> seen = StateOf(options_.query, node_);
    if (!seen.ok() || !NothingRuns(seen->state)) return std::nullopt;
    return Done(*seen);
  }

  int Done(const Seen& seen) {
    Print(options_.query.json, node_, seen);
    return kDone;
  }

  const DrainOptions& options_;
  const NodeNumber node_;
  bool ordered_ = false;
  Nanos silent_since_ = kForever;
  absl::Status last_;
};

}  // namespace

int RunDrain(const DrainOptions& options) {
  const absl::StatusOr<NodeNumber> node = NodeOf(options);
  if (!node.ok()) return Complain(node.status());
  const Nanos deadline = Deadline(MonotonicNow(), options.wait.value_or(0));
  Drain drain(options, *node);
  while (true) {
    if (const std::optional<int> code = drain.Try(); code.has_value()) return *code;
    if (MonotonicNow() >= deadline) return ComplainOfTime(*node, drain.last());
    const timespec pause{0, kLookAgain};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace sheaf::cli
