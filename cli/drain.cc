// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/drain.h"

#include <time.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/text/json.h"

namespace sheaf::cli {
namespace {

constexpr Nanos kLookAgain = 100 * kMillisecond;

// What the cluster says of `node`. "DEAD" also when nobody remembers it.
absl::StatusOr<std::string> StateOf(const DrainOptions& options) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::NODES);
  const absl::StatusOr<proto::StateAnswer> answer = Ask(options.query, query);
  if (!answer.ok()) return answer.status();
  for (const proto::NodeRow& row : answer->nodes()) {
    if (row.node() == options.node) return row.state();
  }
  return "DEAD";
}

bool NothingRuns(const std::string& state) { return state == "DRAINED" || state == "DEAD"; }

void Print(const DrainOptions& options, const std::string& state) {
  if (options.query.json) {
    std::printf("%s\n", JsonObject()
                            .Add("node", JsonNumber(uint64_t{options.node}))
                            .Add("state", JsonString(state))
                            .Done()
                            .c_str());
  } else if (NothingRuns(state)) {
    std::printf("Node %u is %s: nothing runs there, it may be stopped.\n", options.node,
                state.c_str());
  } else {
    std::printf("Node %u takes no new work; what runs there goes on to its end.\n", options.node);
  }
}

}  // namespace

int RunDrain(const DrainOptions& options) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::DRAIN);
  query.set_id(absl::StrCat(options.node));
  const absl::StatusOr<proto::StateAnswer> answer = Ask(options.query, query);
  if (!answer.ok()) return Complain(answer.status());
  if (!answer->error().empty()) {
    Complain(absl::InternalError(answer->error()));
    return kNotThere;
  }
  const Nanos deadline = Deadline(MonotonicNow(), options.wait.value_or(0));
  while (true) {
    const absl::StatusOr<std::string> state = StateOf(options);
    if (!state.ok()) return Complain(state.status());
    if (!options.wait.has_value() || NothingRuns(*state)) {
      Print(options, *state);
      return kDone;
    }
    if (MonotonicNow() >= deadline) {
      Complain(absl::DeadlineExceededError(
          absl::StrCat("work runs on node ", options.node,
                       " even now; sheaf list workers shows it, and sheaf "
                       "stop on that node ends it")));
      return kTimedOut;
    }
    const timespec pause{0, kLookAgain};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace sheaf::cli
