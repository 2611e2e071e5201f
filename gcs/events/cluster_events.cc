// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/events/cluster_events.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace sheaf {
namespace {

constexpr uint32_t kDefaultLimit = 100;
constexpr int kTermShift = 20;  // Terms are milliseconds: no term has so many events in one.
constexpr size_t kMaxIdBytes = 128;

bool IsOfRaylets(proto::EventRow::Kind kind) {
  return kind == proto::EventRow::ACTOR_DIED || kind == proto::EventRow::OUT_OF_MEMORY ||
         kind == proto::EventRow::SPILL_FAILED || kind == proto::EventRow::INFEASIBLE;
}

// As text that can be shown: what is no UTF-8 becomes '?'.
std::string Shown(std::string_view text, size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    if (out.size() + std::max<size_t>(length, 1) > max_bytes) break;
    if (length == 0) {
      out += '?';
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

// The value that a filter speaks of; none: there is no such key.
bool Fits(const proto::EventRow& event, const proto::StateFilter& filter) {
  std::string value;
  if (filter.key() == "severity") {
    value = proto::EventRow::Severity_Name(event.severity());
  } else if (filter.key() == "kind") {
    value = proto::EventRow::Kind_Name(event.kind());
  } else if (filter.key() == "node") {
    value = absl::StrCat(event.node());
  } else if (filter.key() == "job") {
    value = absl::StrCat(event.job());
  } else if (filter.key() == "id") {
    value = event.id();
  } else {
    return false;
  }
  return absl::EqualsIgnoreCase(value, filter.value()) != filter.not_equal();
}

}  // namespace

void ClusterEvents::Add(proto::EventRow::Kind kind, proto::EventRow::Severity severity,
                        std::string_view message, const About& about) {
  proto::EventRow event;
  // A cursor from before a restart is below all that comes behind it.
  event.set_number((term_ << kTermShift) + ++added_);
  event.set_unix_ms((unix_ns_at_zero_ + clock_.Now()) / kMillisecond);
  event.set_kind(kind);
  event.set_severity(severity);
  event.set_message(Shown(message, kMaxMessage));
  event.set_node(about.node);
  event.set_job(about.job);
  event.set_id(Shown(about.id, kMaxIdBytes));
  events_.push_back(std::move(event));
  if (events_.size() > kKept) events_.pop_front();
}

void ClusterEvents::OnReport(NodeNumber node, const proto::EventRow& event) {
  if (!IsOfRaylets(event.kind()) || !proto::EventRow::Severity_IsValid(event.severity())) return;
  Add(event.kind(), event.severity(), event.message(), {node, event.job(), event.id()});
}

void ClusterEvents::List(const proto::ListEvents& request, proto::EventList* answer) const {
  const size_t limit = request.limit() == 0 ? kDefaultLimit : request.limit();
  std::deque<const proto::EventRow*> found;
  for (const proto::EventRow& event : events_) {
    if (event.number() <= request.after()) continue;
    if (!std::all_of(request.filters().begin(), request.filters().end(),
                     [&event](const auto& filter) { return Fits(event, filter); })) {
      continue;
    }
    answer->set_matching(answer->matching() + 1);
    if (found.size() >= limit && request.after() != 0) continue;
    found.push_back(&event);
    if (found.size() > limit) found.pop_front();
  }
  for (const proto::EventRow* event : found) *answer->add_events() = *event;
}

}  // namespace sheaf
