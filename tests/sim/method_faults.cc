// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/method_faults.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "absl/strings/str_cat.h"
#include "gcs/gcs_operations.h"
#include "tests/sim/trace.h"

namespace sheaf::sim {
namespace {

constexpr int kLastBody = 200;       // Of any oneof here: field numbers end far below.
constexpr uint64_t kFaultOneIn = 3;  // Of frames of a method that lacks faults,
constexpr uint64_t kLaterOneIn = 8;  // and of others.
constexpr uint32_t kMostLosses = 3;  // Of one request in a row; then it comes through.
constexpr const char* kFaultNames[kMethodFaults] = {"request lost", "reply lost", "twice",
                                                    "in flight"};

const char* EventName(proto::GcsEvent::BodyCase body) {
  using E = proto::GcsEvent;
  switch (body) {
    case E::kDelta:
      return "event delta";
    case E::kStartActor:
      return "event start_actor";
    case E::kKillActor:
      return "event kill_actor";
    case E::kPlaceGroup:
      return "event place_group";
    case E::kDropGroup:
      return "event drop_group";
    case E::kRestarted:
      return "event restarted";
    case E::kStartEntrypoint:
      return "event start_entrypoint";
    case E::kStopEntrypoint:
      return "event stop_entrypoint";
    case E::BODY_NOT_SET:
      break;
  }
  return nullptr;
}

}  // namespace

MethodTable::MethodTable() {
  for (int body = 1; body < kLastBody; ++body) {
    const auto request = static_cast<proto::GcsRequest::BodyCase>(body);
    // Asked once a minute, of logs that a disk has: no run has either.
    if (request == proto::GcsRequest::kForgottenSubmissions) continue;
    if (const GcsOperation known = OperationOf(request); known.name != nullptr)
      rows_[known.name] = {.declared = true,
                           .has_reply = request != proto::GcsRequest::kReportEvent};  // Told once.
    if (const char* event = EventName(static_cast<proto::GcsEvent::BodyCase>(body)))
      rows_[event] = {.declared = true};
  }
}

void MethodTable::Know(const std::string& name) { rows_[name].has_reply = true; }

void MethodTable::Count(const std::string& method, MethodFault fault) {
  ++rows_[method].counts[static_cast<size_t>(fault)];
}

std::vector<std::string> MethodTable::Missing() const {
  std::vector<std::string> missing;
  for (const auto& [name, row] : rows_) {
    if (!row.is_wanted()) continue;
    for (size_t i = 0; i < kMethodFaults; ++i) {
      if (static_cast<MethodFault>(i) == MethodFault::kReplyLost && !row.has_reply) continue;
      if (row.counts[i] < kWanted)
        missing.push_back(
            absl::StrCat(name, ": ", kFaultNames[i], " ", row.counts[i], " of ", kWanted));
    }
  }
  return missing;
}

size_t MethodTable::CountWanted() const {
  size_t count = 0;
  for (const auto& [name, row] : rows_) count += row.is_wanted();
  return count;
}

size_t MethodTable::CountMissing() const {
  std::set<std::string> names;
  for (const std::string& words : Missing()) names.insert(words.substr(0, words.find(':')));
  return names.size();
}

void MethodTable::Print() const {
  std::printf("%-24s %8s", "method", "frames");
  for (const char* name : kFaultNames) std::printf(" %12s", name);
  std::printf("\n");
  for (const auto& [name, row] : rows_) {
    std::printf("%-24s %8lu", name.c_str(), row.uses);
    for (size_t i = 0; i < kMethodFaults; ++i) {
      if (static_cast<MethodFault>(i) == MethodFault::kReplyLost && !row.has_reply) {
        std::printf(" %12s", "-");
      } else {
        std::printf(" %12lu", row.counts[i]);
      }
    }
    std::printf("%s\n", row.is_wanted() ? "" : "  (rare)");
  }
}

// Now and then, one of the kinds that this method has had least of in this run: which faults a run
// has depends on its seed alone.
Fate MethodFaults::Choose(const std::string& method, std::initializer_list<MethodFault> kinds) {
  MethodCounts& chosen = chosen_[method];
  const auto of = [&](MethodFault kind) -> uint64_t& { return chosen[static_cast<size_t>(kind)]; };
  uint64_t least = UINT64_MAX;
  for (const MethodFault kind : kinds) least = std::min(least, of(kind));
  if (ended_ || !random_.OneIn(least < MethodTable::kWanted ? kFaultOneIn : kLaterOneIn))
    return Fate::kWhole;
  std::vector<MethodFault> rare;
  for (const MethodFault kind : kinds) {
    if (of(kind) == least) rare.push_back(kind);
  }
  const MethodFault kind = rare[random_.Below(rare.size())];
  ++of(kind);
  switch (kind) {
    case MethodFault::kTwice:
      return Fate::kTwice;
    case MethodFault::kInFlight:
      return Fate::kInFlight;
    case MethodFault::kReplyLost:
      return Fate::kReplyLost;
    default:
      return Fate::kLost;
  }
}

Fate MethodFaults::OfMessage(const std::vector<FrameKind>& kinds) {
  std::set<std::string> names;
  for (const FrameKind kind : kinds) {
    const std::string name = absl::StrCat("frame ", FrameName(kind));
    if (names.insert(name).second) table_.Know(name);
    table_.Used(name);
    ++uses_[name];
  }
  const auto rarest = std::min_element(names.begin(), names.end(),
                                       [&](auto& a, auto& b) { return uses_[a] < uses_[b]; });
  const Fate fate = Choose(*rarest, {MethodFault::kRequestLost, MethodFault::kReplyLost,
                                     MethodFault::kTwice, MethodFault::kInFlight});
  for (const std::string& name : names) CountFate(name, fate);
  return fate;
}

Fate MethodFaults::OfFetch() {
  const std::string name = "block";
  table_.Know(name);
  table_.Used(name);
  const Fate fate = Choose(name, {MethodFault::kRequestLost, MethodFault::kReplyLost,
                                  MethodFault::kTwice, MethodFault::kInFlight});
  CountFate(name, fate);
  return fate;
}

void MethodFaults::CountFate(const std::string& method, Fate fate) {
  switch (fate) {
    case Fate::kWhole:
      return;
    case Fate::kLost:
      return table_.Count(method, MethodFault::kRequestLost);
    case Fate::kReplyLost:
      return table_.Count(method, MethodFault::kReplyLost);
    case Fate::kTwice:
      return table_.Count(method, MethodFault::kTwice);
    case Fate::kInFlight:
      return table_.Count(method, MethodFault::kInFlight);
  }
}

Fate MethodFaults::OfFrameToGcs(const std::string& body) {
  proto::GcsRequest request;
  if (!request.ParseFromString(body)) return Fate::kWhole;
  const GcsOperation operation = OperationOf(request.body_case());
  if (operation.name == nullptr) return Fate::kWhole;
  const std::string method = operation.name;
  table_.Used(method);
  // Of soft ones each method has an entry of its own.
  const Key key{request.client(), request.sequence() != 0
                                      ? request.sequence()
                                      : ~static_cast<uint64_t>(request.body_case())};
  Open& open = open_[key];
  open.method = method;
  if (std::exchange(open.request_lost, false)) table_.Count(method, MethodFault::kRequestLost);
  if (std::exchange(open.reply_lost, false)) table_.Count(method, MethodFault::kReplyLost);
  const Fate fate =
      open.losses < kMostLosses
          ? Choose(method, {MethodFault::kRequestLost, MethodFault::kTwice, MethodFault::kInFlight})
          : Choose(method, {MethodFault::kTwice, MethodFault::kInFlight});
  if (fate == Fate::kLost) {
    ++open.losses;
    open.request_lost = true;
  } else {
    if (request.sequence() == 0) open.losses = 0;
    CountFate(method, fate);
  }
  return fate;
}

Fate MethodFaults::OfFrameFromGcs(FrameKind kind, const std::string& body) {
  if (kind == FrameKind::kGcsEvent) {
    proto::GcsEvent event;
    const char* name = event.ParseFromString(body) ? EventName(event.body_case()) : nullptr;
    if (name == nullptr) return Fate::kWhole;
    table_.Used(name);
    const Fate fate =
        Choose(name, {MethodFault::kRequestLost, MethodFault::kTwice, MethodFault::kInFlight});
    CountFate(name, fate);
    return fate;
  }
  proto::GcsReply reply;
  if (kind != FrameKind::kGcsReply || !reply.ParseFromString(body)) return Fate::kWhole;
  using R = proto::GcsRequest;
  const auto soft = reply.has_heartbeat() ? R::kHeartbeat : R::kActorRows;
  const auto open = open_.find(
      {reply.client(), reply.sequence() != 0 ? reply.sequence() : ~static_cast<uint64_t>(soft)});
  if (open == open_.end() || open->second.losses >= kMostLosses) return Fate::kWhole;
  if (Choose(open->second.method, {MethodFault::kReplyLost}) == Fate::kWhole) return Fate::kWhole;
  ++open->second.losses;
  open->second.reply_lost = true;
  return Fate::kLost;
}

}  // namespace sheaf::sim
