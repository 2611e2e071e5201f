// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Pairs of nodes that do not hear each other, while the GCS hears both. What one asks of the other
// would wait for ever, so one of them has to go: the one that fewest others hear. Pure: called by
// the GCS loop; not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <optional>
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
  // it goes for no pair. The caller ends it and calls Remove.
  std::optional<Verdict> Next(Nanos now, const WorthOf& worth);

 private:
  struct Times {
    Nanos first;
    Nanos last;
  };
  const Options options_;
  std::map<std::pair<NodeNumber, NodeNumber>, Times> pairs_;  // The lower number first.
};

}  // namespace sheaf
