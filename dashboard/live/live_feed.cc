// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/live/live_feed.h"

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/text/json.h"
#include "dashboard/live/digest_json.h"

namespace sheaf::dashboard {
namespace {

constexpr uint32_t kMostLanes = 32;
constexpr uint32_t kEventsShown = 50;
constexpr Nanos kEventsPeriod = kSecond, kEventsPeriodWithoutGcs = 10 * kSecond;
constexpr Nanos kPatience = 800 * kMillisecond;  // With nodes; the others are shown in time.
constexpr Nanos kEventsAskTime = 5 * kSecond;
constexpr uint16_t kGoingAway = 1001;

absl::StatusOr<uint32_t> LanesOf(const http::Request& request) {
  uint32_t lanes = 0;
  for (const auto& [name, value] : request.query) {
    if (name != "lanes") {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no parameter ", name.substr(0, 80), "; there is lanes"));
    }
    if (!absl::SimpleAtoi(value, &lanes) || lanes > kMostLanes) {
      return absl::InvalidArgumentError(
          absl::StrCat("lanes=", value.substr(0, 80), ": want a number from 0 to ", kMostLanes));
    }
  }
  return lanes;
}

}  // namespace

LiveFeed::~LiveFeed() {
  std::unique_ptr<ThreadExecutor> thread;
  {
    const MutexLock lock(mutex_);
    thread = std::move(thread_);
  }
  if (thread != nullptr) thread->Stop();
  const MutexLock lock(mutex_);
  for (const Viewer& viewer : viewers_) viewer.stream->Close(kGoingAway, "the dashboard ends");
}

void LiveFeed::AddRoutes(http::Router& router) {
  router.Add({.method = "GET",
              .pattern = "/api/sheaf/live",
              .handler = [this](const http::Request& request, const http::Reply& reply) {
                const absl::StatusOr<uint32_t> lanes = LanesOf(request);
                if (!lanes.ok()) {
                  return reply.Send(http::PlainText(400, std::string(lanes.status().message())));
                }
                Add(reply.Open({.content_type = "text/event-stream",
                                .headers = {{"Cache-Control", "no-store"}}}),
                    *lanes);
              }});
}

void LiveFeed::Add(std::shared_ptr<http::Stream> stream, uint32_t lanes) {
  const MutexLock lock(mutex_);
  viewers_.push_back({std::move(stream), lanes});
  if (thread_ == nullptr) {
    thread_ = std::make_unique<ThreadExecutor>(
        ThreadExecutor::Options{"sheaf-live", kPeriod, [this] { Step(); }});
  }
  thread_->Post([this] { next_ = 0; });  // The next tick is for it, however many nodes there are.
}

absl::StatusOr<proto::StateAnswer> LiveFeed::AskDigests(uint32_t lanes, bool from_the_start) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::DIGEST);
  // However many are wanted: a thousand nodes have no room for 32 of each.
  const int most = std::max(1, kMostLanesInAll / std::max(1, nodes_));
  query.set_lanes(nodes_ == 0 ? 0 : std::min(lanes, static_cast<uint32_t>(most)));
  query.set_patience_ms(kPatience / kMillisecond);
  *query.mutable_cursors() = cursors_;
  if (from_the_start) {
    // What the others have been told, so that all go on together.
    for (proto::DigestCursor& cursor : *query.mutable_cursors()) {
      cursor.set_until_ended(cursor.ended());
      cursor.set_until_failures(cursor.failures());
      cursor.clear_ended();
      cursor.clear_failures();
      cursor.clear_at_ns();
    }
  }
  absl::StatusOr<proto::StateAnswer> answer = ask_(query, kEventsAskTime);
  if (!answer.ok()) return answer;
  if (!answer->error().empty()) return absl::UnavailableError(answer->error());
  NameLate(*answer);
  if (!from_the_start) KeepCursors(*answer);
  return answer;
}

// A node whose collector was late has told half; one whose part found no room, nothing.
void LiveFeed::NameLate(proto::StateAnswer& answer) const {
  auto& digests = *answer.mutable_digests();
  absl::btree_set<uint32_t> late(answer.late_nodes().begin(), answer.late_nodes().end());
  absl::btree_set<uint32_t> there;
  for (auto digest = digests.begin(); digest != digests.end();) {
    if (digest->has_next()) {
      there.insert(digest->node());
      ++digest;
    } else {
      late.insert(digest->node());
      digest = digests.erase(digest);
    }
  }
  for (const proto::DigestCursor& cursor : cursors_) {
    if (answer.truncated() && !there.contains(cursor.node())) late.insert(cursor.node());
  }
  answer.mutable_late_nodes()->Assign(late.begin(), late.end());
}

// A node that is late goes on from where it was; one that is gone is forgotten.
void LiveFeed::KeepCursors(const proto::StateAnswer& answer) {
  nodes_ = answer.digests_size() + answer.late_nodes_size();
  const absl::btree_set<uint32_t> late(answer.late_nodes().begin(), answer.late_nodes().end());
  google::protobuf::RepeatedPtrField<proto::DigestCursor> kept;
  for (const proto::DigestCursor& cursor : cursors_) {
    if (late.contains(cursor.node())) *kept.Add() = cursor;
  }
  for (const proto::NodeDigest& digest : answer.digests()) {
    proto::DigestCursor& next = *kept.Add();
    next = digest.next();
    next.set_node(digest.node());
  }
  cursors_.Swap(&kept);
}

void LiveFeed::LookAtEvents() {
  new_events_.Clear();
  const Nanos now = MonotonicNow();
  if (now < next_events_) return;
  next_events_ = now + kEventsPeriod;
  proto::StateQuery query;
  query.set_what(proto::StateQuery::EVENTS);
  query.set_limit(kEventsShown);
  query.set_after(last_event_);
  absl::StatusOr<proto::StateAnswer> answer = ask_(query, kEventsAskTime);
  // Without the GCS each question waits; digests shall not.
  if (!answer.ok() || answer->truncated()) next_events_ = now + kEventsPeriodWithoutGcs;
  if (!answer.ok() || answer->events_size() == 0) return;
  last_event_ = answer->events().rbegin()->number();
  auto& past = *past_events_.mutable_events();
  for (const proto::EventRow& event : answer->events()) *past.Add() = event;
  if (past.size() > static_cast<int>(kEventsShown))
    past.DeleteSubrange(0, past.size() - static_cast<int>(kEventsShown));
  new_events_ = *std::move(answer);
}

void LiveFeed::Send(Viewer& viewer, const std::string& event, const std::string& data) {
  std::string text;
  if (viewer.skipped > 0) {
    text = absl::StrCat("event: skipped\ndata: {\"events\":", viewer.skipped, "}\n\n");
  }
  // JSON has no line feed of its own.
  absl::StrAppend(&text, "event: ", event, "\ndata: ", data, "\n\n");
  viewer.skipped = viewer.stream->Write(std::move(text)) ? 0 : viewer.skipped + 1;
}

void LiveFeed::Tell(Viewers& viewers, bool newcomers, const proto::StateAnswer& digests,
                    const proto::StateAnswer& events) {
  std::map<uint32_t, std::string> texts;  // By lanes: most watch the same.
  for (Viewer& viewer : viewers) {
    if (viewer.knows_the_past == newcomers) continue;
    std::string& text = texts[viewer.lanes];
    if (text.empty()) {
      proto::StateAnswer cut = digests;
      for (proto::NodeDigest& digest : *cut.mutable_digests()) {
        const int most = static_cast<int>(viewer.lanes);
        if (digest.lanes_size() <= most) continue;
        const int over = digest.lanes_size() - most;
        digest.set_lanes_left_out(digest.lanes_left_out() + static_cast<uint32_t>(over));
        digest.mutable_lanes()->DeleteSubrange(most, over);
        if (most == 0) digest.clear_names();
      }
      text = DigestJson(cut, events, period_);
    }
    Send(viewer, "digest", text);
  }
}

void LiveFeed::Step() {
  const Nanos now = MonotonicNow();
  if (now < next_) return;
  Viewers viewers;
  {
    const MutexLock lock(mutex_);
    viewers_.remove_if([](const Viewer& viewer) { return !viewer.stream->open(); });
    viewers.swap(viewers_);
  }
  if (viewers.empty()) {
    cursors_.Clear();  // Who comes next begins anew.
    nodes_ = 0;
    return;
  }
  try {
    TellAll(viewers);
  } catch (const std::exception& failure) {  // Out of memory, for one. Viewers ask again.
    Log(LogLevel::kError, "dashboard: what nodes do now cannot be told: ", failure.what());
    cursors_.Clear();
    nodes_ = 0;
    viewers.clear();
  }
  // Ticks are coarse: from when it was due, or each update would be late by a part of one.
  next_ = (now - next_ < period_ ? next_ : now) + period_;
  const MutexLock lock(mutex_);
  viewers_.splice(viewers_.begin(), viewers);
}

void LiveFeed::TellAll(Viewers& viewers) {
  const bool any_old = std::any_of(viewers.begin(), viewers.end(),
                                   [](const Viewer& viewer) { return viewer.knows_the_past; });
  const bool any_new = std::any_of(viewers.begin(), viewers.end(),
                                   [](const Viewer& viewer) { return !viewer.knows_the_past; });
  if (!any_old) cursors_.Clear();
  uint32_t lanes = 0;
  for (const Viewer& viewer : viewers) lanes = std::max(lanes, viewer.lanes);
  LookAtEvents();
  absl::Status why;
  if (nodes_ == 0) {  // How many there are says how much of each is told.
    why = AskDigests(0, /*from_the_start=*/false).status();
    cursors_.Clear();
  }
  absl::StatusOr<proto::StateAnswer> digests = proto::StateAnswer();
  if (why.ok()) digests = AskDigests(lanes, /*from_the_start=*/false);
  why.Update(digests.status());
  if (why.ok()) {
    period_ = nodes_ > kMany ? kPeriodOfMany : kPeriod;
    Tell(viewers, /*newcomers=*/false, *digests, new_events_);
    if (any_old && any_new) digests = AskDigests(lanes, /*from_the_start=*/true);
    why.Update(digests.status());
  }
  if (why.ok()) {
    Tell(viewers, /*newcomers=*/true, *digests, past_events_);
    for (Viewer& viewer : viewers) viewer.knows_the_past = true;
    return;
  }
  const std::string trouble =
      JsonObject().Add("message", JsonString(std::string(why.message()))).Done();
  for (Viewer& viewer : viewers) Send(viewer, "trouble", trouble);
}

}  // namespace sheaf::dashboard
