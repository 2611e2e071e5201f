// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Pairs of nodes that do not hear each other, while the GCS hears both. What one asks of the other
// would wait for ever, so one of them has to go: the one that fewest others hear. Pure: called by
// the GCS loop; not thread-safe.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/ids.h"

namespace sheaf {

class UnheardPairs {
 public:
  struct Options {
    // Who has not repeated its word for so long hears the other again.
    Nanos fresh = 4 * kSecond;
    // So long a pair is reported before the verdict: others may know more.
    Nanos gather = 3 * kSecond;
  };
  // How a node fares among those that are equally unheard: the lowest goes.
  using WorthOf = std::function<int(NodeNumber node)>;
  struct Verdict {
    NodeNumber node;
    std::string reason;  // For people.
  };
  explicit UnheardPairs(Options options) : options_(options) {}

  // `from` has not heard `about` for long. Repeated about once a second as long as that is so.
  void Report(NodeNumber from, NodeNumber about, Nanos now);
  // `node` is no member any more.
  void Remove(NodeNumber node);
  // Which node has to go now, if any: of those in a pair whose time is over the one in most pairs,
  // of equals the one of least worth, of equals the one with the highest number. `worth` below 0:
  // it goes for no pair. The caller ends it and calls Remove. Costs no look at the other pairs:
  // half a cluster that does not hear the other half makes a quarter of a million.
  std::optional<Verdict> Next(Nanos now, const WorthOf& worth);

 private:
  using Pair = std::pair<NodeNumber, NodeNumber>;  // The lower number first.
  struct Times {
    Nanos first;
    Nanos last;
    std::list<Pair>::iterator place;  // In `by_last_`.
  };
  void Erase(const Pair& pair);

  const Options options_;
  std::map<Pair, Times> pairs_;
  std::list<Pair> by_last_;  // Those that were reported longest ago come first.
  std::set<Pair> ripe_;      // Have been reported for options_.gather.
  // With whom a node is in a pair; none is empty.
  std::map<NodeNumber, std::set<NodeNumber>> unheard_;
};

}  // namespace sheaf
