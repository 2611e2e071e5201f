// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/drain.h"

#include <time.h>

#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text/json.h"

namespace sheaf::cli {
namespace {

constexpr Nanos kLookAgain = 100 * kMillisecond;

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

// What the cluster says of `node`. "DEAD" also when nobody remembers it. kUnavailable: the GCS, which
// knows, does not answer now.
absl::StatusOr<std::string> StateOf(const QueryOptions& options, NodeNumber node) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::NODES);
  const absl::StatusOr<proto::StateAnswer> answer = Ask(options, query);
  if (!answer.ok()) return answer.status();
  if (!answer->error().empty()) return absl::UnavailableError(answer->error());
  for (const proto::NodeRow& row : answer->nodes()) {
    if (row.node() == node) return row.state();
  }
  if (answer->truncated()) {
    return absl::UnavailableError(
        absl::StrCat("the GCS does not answer: what runs on node ", node, " is not known"));
  }
  return "DEAD";
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

void Print(bool json, NodeNumber node, const std::string& state) {
  if (json) {
    std::printf("%s\n", JsonObject()
                            .Add("node", JsonNumber(uint64_t{node}))
                            .Add("state", JsonString(state))
                            .Done()
                            .c_str());
  } else if (NothingRuns(state)) {
    std::printf("Node %u is %s: nothing runs there, it may be stopped.\n", node, state.c_str());
  } else {
    std::printf("Node %u takes no new work; what runs there goes on to its end.\n", node);
  }
}

}  // namespace

int RunDrain(const DrainOptions& options) {
  const absl::StatusOr<NodeNumber> node = NodeOf(options);
  if (!node.ok()) return Complain(node.status());
  const Nanos deadline = Deadline(MonotonicNow(), options.wait.value_or(0));
  // Who waits does so for a GCS that is away, too: it may be started anew just then.
  absl::Status last;
  bool ordered = false;
  while (true) {
    if (!ordered) {
      last = Order(options.query, *node);
      ordered = last.ok();
      const bool may_pass = absl::IsUnavailable(last) || absl::IsDeadlineExceeded(last);
      if (!ordered && !(may_pass && options.wait.has_value())) {
        const int code = Complain(last);
        return absl::IsInternal(last) || absl::IsUnavailable(last) ? kNotThere : code;
      }
    }
    if (ordered) {
      const absl::StatusOr<std::string> state = StateOf(options.query, *node);
      if (!state.ok() && !options.wait.has_value()) return Complain(state.status());
      if (state.ok() && (!options.wait.has_value() || NothingRuns(*state))) {
        Print(options.query.json, *node, *state);
        return kDone;
      }
      last = state.ok() ? absl::OkStatus() : state.status();
    }
    if (MonotonicNow() >= deadline) return ComplainOfTime(*node, last);
    const timespec pause{0, kLookAgain};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace sheaf::cli
