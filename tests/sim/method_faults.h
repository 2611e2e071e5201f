// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Fault row 22: whatever the GCS and raylets say to each other is lost, comes twice, and is asked
// again while it is being answered; per method, and counted. `sim --methods` runs clusters with
// many of these faults until each method has had enough of each kind.
//
// A loss counts once the same request was sent again (of heartbeats and rows, which are said once:
// the next one). Events of the GCS have no reply; nor are they sent again as such, so theirs count
// at once, as those between raylets do: there every frame must come, which NodeWire looks after.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/frame.h"
#include "base/random.h"
#include "proto/gcs.pb.h"

namespace sheaf::sim {

enum class MethodFault : uint8_t {
  kRequestLost = 0,
  kReplyLost,
  kTwice,     // The same again, some time later.
  kInFlight,  // The same again at once: the first is in progress, where it is not done at once.
  kCount,
};
inline constexpr size_t kMethodFaults = static_cast<size_t>(MethodFault::kCount);
using MethodCounts = std::array<uint64_t, kMethodFaults>;

// Over all runs: what each method has had.
class MethodTable {
 public:
  static constexpr uint64_t kWanted = 2;  // Of each fault.
  // What raylets say to each other is not declared: of what was said less often, nothing is wanted.
  static constexpr uint64_t kOften = 200;

  MethodTable();  // Knows all methods, from what the messages declare.
  // Something that raylets say to each other.
  void Know(const std::string& name);
  void Count(const std::string& method, MethodFault fault);
  void Used(const std::string& method) { ++rows_[method].uses; }
  // "kv_put: reply lost 1 of 2"; empty: all are covered.
  std::vector<std::string> Missing() const;
  void Print() const;
  // Methods of which faults are wanted, and those that lack some.
  size_t CountWanted() const;
  size_t CountMissing() const;

 private:
  struct Row {
    bool declared = false;  // A request to the GCS, or an event of it.
    bool has_reply = false;
    uint64_t uses = 0;
    MethodCounts counts{};
    bool is_wanted() const { return declared || uses >= kOften; }
  };
  std::map<std::string, Row> rows_;
};

// What becomes of a frame.
enum class Fate : uint8_t { kWhole, kLost, kReplyLost, kTwice, kInFlight };

// Of one run.
class MethodFaults {
 public:
  MethodFaults(MethodTable& table, uint64_t seed) : table_(table), random_(seed) {}

  Fate OfFrameToGcs(const std::string& body);
  Fate OfFrameFromGcs(FrameKind kind, const std::string& body);
  // Of a message between raylets, with the frames of these kinds; its reply is the acknowledgement.
  Fate OfMessage(const std::vector<FrameKind>& kinds);
  // Of a block that one raylet asks another for.
  Fate OfFetch();
  // From here on nothing goes wrong any more.
  void End() { ended_ = true; }

 private:
  // Of a request: its client and number. Soft ones have number 0.
  using Key = std::pair<uint64_t, uint64_t>;
  struct Open {
    std::string method;
    uint32_t losses = 0;
    bool request_lost = false, reply_lost = false;  // And not asked again since.
  };
  Fate Choose(const std::string& method, std::initializer_list<MethodFault> kinds);
  void CountFate(const std::string& method, Fate fate);

  MethodTable& table_;
  SeededRandom random_;
  std::map<Key, Open> open_;
  std::map<std::string, MethodCounts> chosen_;
  std::map<std::string, uint64_t> uses_;  // Of frames between raylets.
  bool ended_ = false;
};

}  // namespace sheaf::sim
