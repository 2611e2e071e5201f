// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/call_trace.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "base/text/json.h"
#include "base/utf8.h"
#include "proto/perfetto.pb.h"

namespace sheaf::telemetry {
namespace {

constexpr uint32_t kPage = 50'000;

using Attempt = std::pair<TaskId, uint32_t>;

// Takes rows in, and tells each attempt once.
class Collector {
 public:
  explicit Collector(CallTrace& trace) : trace_(trace) { trace_.words = {""}; }

  // Its caller tells of a call, where it ran the worker and the node.
  void Add(const proto::TaskRow& row) {
    const absl::StatusOr<TaskId> task = TaskId::FromHex(row.task_id());
    if (!task.ok()) return;  // Of another node, which may say anything.
    TracedCall call{.task = *task,
                    .actor = ActorId::FromHex(row.actor_id()).value_or(ActorId()),
                    .owner = row.owner(),
                    .worker = row.worker(),
                    .parent_sequence = row.parent_sequence(),
                    .created_unix_ms = row.created_unix_ms(),
                    .begin_unix_ns = row.begin_unix_ns(),
                    .end_unix_ns = row.end_unix_ns(),
                    .attempt = row.attempt(),
                    .job = row.job(),
                    .thread = row.thread(),
                    .os_pid = row.os_pid(),
                    .weight = row.weight(),
                    .name = PlaceOf(row.name()),
                    .state = PlaceOf(row.state())};
    const auto [place, added] = places_.try_emplace({*task, row.attempt()}, trace_.calls.size());
    if (added) return trace_.calls.push_back(call);
    // Who saw the later end has the last word.
    TracedCall& known = trace_.calls[place->second];
    if (call.end_unix_ns < known.end_unix_ns) std::swap(call, known);
    Override(call, known);
  }

 private:
  uint32_t PlaceOf(const std::string& word) {
    const auto [place, added] =
        word_places_.try_emplace(word, static_cast<uint32_t>(trace_.words.size()));
    if (word.empty()) return 0;
    if (added) trace_.words.push_back(word);
    return place->second;
  }

  // What `newer` knows counts, else what was known.
  static void Override(const TracedCall& newer, TracedCall& known) {
    const auto take = [](const auto& from, auto& to) {
      if (from != std::decay_t<decltype(from)>()) to = from;
    };
    take(newer.actor, known.actor);
    take(newer.owner, known.owner);
    take(newer.worker, known.worker);
    take(newer.parent_sequence, known.parent_sequence);
    take(newer.created_unix_ms, known.created_unix_ms);
    take(newer.begin_unix_ns, known.begin_unix_ns);
    take(newer.end_unix_ns, known.end_unix_ns);
    take(newer.job, known.job);
    take(newer.thread, known.thread);
    take(newer.os_pid, known.os_pid);
    take(newer.weight, known.weight);
    take(newer.name, known.name);
    take(newer.state, known.state);
  }

  CallTrace& trace_;
  absl::flat_hash_map<Attempt, size_t> places_;
  absl::flat_hash_map<std::string, uint32_t> word_places_;
};

uint32_t NodeOf(const TracedCall& call) { return ProcessId::Unpack(call.worker).node; }

// A row of the picture.
struct Lane {
  uint32_t node = 0;
  int32_t os_pid = 0;
  uint32_t thread = 0;
  bool operator<(const Lane& other) const {
    return std::tie(node, os_pid, thread) < std::tie(other.node, other.os_pid, other.thread);
  }
};

Lane LaneOf(const TracedCall& call) { return {NodeOf(call), call.os_pid, call.thread}; }

std::string TitleOf(const Lane& lane) {
  return lane.thread == 0 ? absl::StrCat("worker ", lane.os_pid)
                          : absl::StrCat("worker ", lane.os_pid, " thread ", lane.thread);
}

std::string TitleOfNode(uint32_t node) { return absl::StrFormat("Node %056x", node); }

// Lanes by the number that each has, from 1; and who made whom.
class Picture {
 public:
  explicit Picture(const CallTrace& trace) {
    for (const TracedCall& call : trace.calls) {
      lanes_.try_emplace(LaneOf(call), 0);
      ran_[{call.worker, call.task.sequence_bits}].push_back(&call);
    }
    int number = 0;
    for (auto& [lane, lane_number] : lanes_) lane_number = ++number;
  }

  const std::map<Lane, int>& lanes() const { return lanes_; }
  int NumberOf(const TracedCall& call) const { return lanes_.at(LaneOf(call)); }

  // The call that made another ran in the other's owner and has the number there. Of different
  // owners several may have it: then it is the one that ran when the other was made. nullptr: a
  // driver made it, or it is not remembered.
  const TracedCall* ParentOf(const TracedCall& call) const {
    const auto found = ran_.find({call.owner, call.parent_sequence});
    if (found == ran_.end()) return nullptr;
    const int64_t made = call.created_unix_ms * kMillisecond;
    const auto distance = [&](const TracedCall* other) {
      return std::max({other->begin_unix_ns - made, made - other->end_unix_ns, int64_t{0}});
    };
    return *std::min_element(
        found->second.begin(), found->second.end(),
        [&](const auto* one, const auto* other) { return distance(one) < distance(other); });
  }

 private:
  std::map<Lane, int> lanes_;
  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, std::vector<const TracedCall*>> ran_;
};

std::string_view PublicState(std::string_view state) {
  return state == "CANCELLED" ? "FAILED" : state;
}

// --------------------------------------------------------------------------------------- Chrome

std::string Micros(int64_t ns) { return absl::StrFormat("%d.%03d", ns / 1000, ns % 1000); }

std::string ChromeName(const char* kind, uint32_t node, int lane, const std::string& name) {
  return absl::StrCat(R"({"ph":"M","name":")", kind, R"(","pid":)", node, R"(,"tid":)", lane,
                      R"(,"args":{"name":)", JsonString(name), "}}");
}

void AddChromeCall(const CallTrace& trace, const TracedCall& call, int lane, std::string* out) {
  const std::string name = JsonString(trace.words[call.name]);
  const std::string& state = trace.words[call.state];
  absl::StrAppend(out, R"({"cat":"task","ph":"X","name":)", name, R"(,"pid":)", NodeOf(call),
                  R"(,"tid":)", lane, R"(,"ts":)", Micros(call.begin_unix_ns), R"(,"dur":)",
                  Micros(call.end_unix_ns - call.begin_unix_ns));
  if (state != "FINISHED") *out += R"(,"cname":"terrible")";
  absl::StrAppend(out, R"(,"args":{"task_id":")", call.task.ToHex(),
                  absl::StrFormat(R"(","job_id":"%08x")", call.job), R"(,"attempt_number":)",
                  call.attempt, R"(,"func_or_class_name":)", name, R"(,"actor_id":)",
                  call.actor.is_nil() ? "null" : JsonString(call.actor.ToHex()));
  absl::StrAppend(out, R"(,"worker_pid":)", call.os_pid, R"(,"state":)",
                  JsonString(PublicState(state)));
  if (call.weight > 1) absl::StrAppend(out, R"(,"stands_for_calls":)", call.weight);
  *out += "}}";
}

// One end of an arrow.
void AddChromeFlow(const char* phase, const TracedCall& call, const TracedCall& at, int lane,
                   std::string* out) {
  absl::StrAppend(out, R"({"cat":"submit","name":"submit","ph":")", phase, R"(","id":")",
                  call.task.ToHex(), R"(","pid":)", NodeOf(at), R"(,"tid":)", lane, R"(,"ts":)",
                  Micros(at.begin_unix_ns), *phase == 'f' ? R"(,"bp":"e"})" : "}");
}

// At least so many as it will have, so that it is never copied as it grows.
size_t ChromeBytes(const CallTrace& trace, const Picture& picture) {
  constexpr size_t kOfACall = 450, kOfAnArrow = 400, kOfALane = 200;  // Without names.
  size_t bytes = picture.lanes().size() * 2 * kOfALane;
  for (const TracedCall& call : trace.calls) {
    bytes += kOfACall + 2 * trace.words[call.name].size();
    if (call.parent_sequence != 0) bytes += kOfAnArrow;
  }
  return bytes;
}

std::string ChromeTrace(const CallTrace& trace) {
  const Picture picture(trace);
  std::string out = "[";
  out.reserve(ChromeBytes(trace, picture));
  const auto next = [&out] {
    if (out.size() > 1) out += ",\n";
    return &out;
  };
  std::optional<uint32_t> node;
  for (const auto& [lane, number] : picture.lanes()) {
    if (node != lane.node)
      *next() += ChromeName("process_name", lane.node, 0, TitleOfNode(lane.node));
    node = lane.node;
    *next() += ChromeName("thread_name", lane.node, number, TitleOf(lane));
  }
  // Calls come by time; an arrow begins earlier, where its parent began.
  std::vector<std::pair<const TracedCall*, const TracedCall*>> made;  // Parent, child.
  for (const TracedCall& call : trace.calls) {
    if (const TracedCall* const parent = picture.ParentOf(call); parent != nullptr)
      made.emplace_back(parent, &call);
  }
  std::stable_sort(made.begin(), made.end(), [](const auto& one, const auto& other) {
    return one.first->begin_unix_ns < other.first->begin_unix_ns;
  });
  absl::flat_hash_set<const TracedCall*> children;
  for (const auto& [parent, child] : made) children.insert(child);
  auto arrow = made.begin();
  for (const TracedCall& call : trace.calls) {
    const int lane = picture.NumberOf(call);
    AddChromeCall(trace, call, lane, next());
    for (; arrow != made.end() && arrow->first->begin_unix_ns <= call.begin_unix_ns; ++arrow)
      AddChromeFlow("s", *arrow->second, *arrow->first, picture.NumberOf(*arrow->first), next());
    if (children.contains(&call)) AddChromeFlow("f", call, call, lane, next());
  }
  return out + "]\n";
}

// ------------------------------------------------------------------------------------- Perfetto

constexpr uint32_t kSequence = 1;
constexpr uint32_t kAnew = 1, kNeeded = 2;  // Of sequence_flags.
// Ids in two halves are 12 bytes of a trace, as text 36.
enum Annotation : uint64_t { kTaskFirst = 1, kTaskSecond, kJob, kAttempt, kState, kStandsFor };
constexpr const char* kAnnotations[] = {
    "task_id first half", "task_id second half", "job", "attempt", "state", "stands_for_calls"};

// Each name travels once; events have its number.
class PerfettoWriter {
 public:
  explicit PerfettoWriter(const CallTrace& trace) : words_(trace.words), picture_(trace) {
    Lanes();
    Names();
    for (const TracedCall& call : trace.calls) {
      if (const TracedCall* const parent = picture_.ParentOf(call); parent != nullptr)
        makes_[parent].push_back(Flow(call));
    }
    for (const TracedCall& call : trace.calls) Call(call);
  }
  std::string Done() { return std::move(out_); }

 private:
  static uint64_t Flow(const TracedCall& call) { return absl::HashOf(call.task, call.attempt); }

  // A Trace is its packets, one behind the other: so only one is in memory.
  void Write(const proto::perfetto::TracePacket& packet) {
    *trace_.add_packet() = packet;
    trace_.AppendToString(&out_);
    trace_.clear_packet();
  }

  void Lanes() {
    for (const auto& [lane, number] : picture_.lanes()) {
      proto::perfetto::TracePacket packet;
      proto::perfetto::TrackDescriptor& track = *packet.mutable_track_descriptor();
      track.set_uuid(static_cast<uint64_t>(number));
      // Perfetto puts threads of one pid together: here they are those of a node.
      track.mutable_thread()->set_pid(static_cast<int32_t>(lane.node + 1));
      track.mutable_thread()->set_tid(number);
      track.mutable_thread()->set_thread_name(TitleOf(lane));
      track.mutable_process()->set_pid(static_cast<int32_t>(lane.node + 1));
      track.mutable_process()->set_process_name(TitleOfNode(lane.node));
      Write(packet);
    }
  }

  void Names() {
    proto::perfetto::TracePacket packet;
    packet.set_trusted_packet_sequence_id(kSequence);
    packet.set_sequence_flags(kAnew);
    proto::perfetto::InternedData& data = *packet.mutable_interned_data();
    const auto add = [](auto* names, uint64_t number, std::string_view name) {
      proto::perfetto::InternedName& one = *names->Add();
      one.set_iid(number);
      one.set_name(ValidUtf8(name));
    };
    add(data.mutable_event_categories(), 1, "task");
    for (uint64_t i = 0; i < std::size(kAnnotations); ++i)
      add(data.mutable_debug_annotation_names(), i + 1, kAnnotations[i]);
    for (size_t i = 0; i < words_.size(); ++i) add(data.mutable_event_names(), i + 1, words_[i]);
    Write(packet);
  }

  void Call(const TracedCall& call) {
    proto::perfetto::TracePacket packet;
    packet.set_trusted_packet_sequence_id(kSequence);
    packet.set_sequence_flags(kNeeded);
    packet.set_timestamp(static_cast<uint64_t>(call.begin_unix_ns));
    proto::perfetto::TrackEvent& event = *packet.mutable_track_event();
    event.set_type(proto::perfetto::TrackEvent::SLICE_BEGIN);
    event.set_track_uuid(static_cast<uint64_t>(picture_.NumberOf(call)));
    event.set_name_iid(call.name + 1);
    event.add_category_iids(1);
    const auto note = [&event](Annotation name) -> proto::perfetto::DebugAnnotation& {
      proto::perfetto::DebugAnnotation& one = *event.add_debug_annotations();
      one.set_name_iid(name);
      return one;
    };
    note(kTaskFirst).set_pointer_value(call.task.maker_bits);
    note(kTaskSecond).set_pointer_value(call.task.sequence_bits);
    note(kJob).set_uint_value(call.job);
    if (call.attempt != 0) note(kAttempt).set_uint_value(call.attempt);
    if (const std::string& state = words_[call.state]; state != "FINISHED")
      note(kState).set_string_value(std::string(PublicState(state)));
    if (call.weight > 1) note(kStandsFor).set_uint_value(call.weight);
    if (picture_.ParentOf(call) != nullptr) event.add_flow_ids(Flow(call));
    if (const auto made = makes_.find(&call); made != makes_.end())
      for (const uint64_t flow : made->second) event.add_flow_ids(flow);
    Write(packet);
    packet.set_timestamp(static_cast<uint64_t>(call.end_unix_ns));
    const uint64_t track = event.track_uuid();
    event.Clear();
    event.set_type(proto::perfetto::TrackEvent::SLICE_END);
    event.set_track_uuid(track);
    Write(packet);
  }

  const std::vector<std::string>& words_;
  const Picture picture_;
  absl::flat_hash_map<const TracedCall*, std::vector<uint64_t>> makes_;
  proto::perfetto::Trace trace_;
  std::string out_;
};

}  // namespace

size_t MostCallsOf(TraceFormat format) {
  return format == TraceFormat::kChrome ? kMostChromeCalls : kMostPerfettoCalls;
}

absl::StatusOr<TraceFormat> ParseTraceFormat(std::string_view text) {
  if (text == "json" || text == "chrome") return TraceFormat::kChrome;
  if (text == "perfetto") return TraceFormat::kPerfetto;
  return absl::InvalidArgumentError(absl::StrCat(
      "format '", absl::CHexEscape(std::string(text.substr(0, 40))), "': want json or perfetto"));
}

absl::StatusOr<CallTrace> CollectCalls(AskState ask, size_t most, uint32_t job) {
  CallTrace trace;
  Collector collector(trace);
  int64_t before = 0;
  bool more = true;
  while (more && trace.calls.size() < most) {
    proto::StateQuery query;
    query.set_what(proto::StateQuery::TASKS);
    query.set_ended(true);
    query.set_limit(kPage);
    query.set_ended_before_ns(before);
    if (job != 0) {
      proto::StateFilter& filter = *query.add_filters();
      filter.set_key("job");
      filter.set_value(absl::StrCat(job));
    }
    SHEAF_ASSIGN_OR_RETURN(proto::StateAnswer answer, ask(query));
    if (!answer.error().empty()) return absl::InternalError(answer.error());
    trace.lost = std::max<uint64_t>(trace.lost, answer.events_lost());
    const size_t known = trace.calls.size();
    int64_t first = std::numeric_limits<int64_t>::max();
    for (const proto::TaskRow& row : answer.tasks()) {
      if (row.end_unix_ns() == 0) continue;
      first = std::min<int64_t>(first, row.end_unix_ns());
      collector.Add(row);
    }
    more = answer.truncated() && trace.calls.size() > known;
    // Some may have ended in the same nanosecond, on other nodes; and each answer reckons the time
    // of day anew, some microseconds apart.
    before = first == std::numeric_limits<int64_t>::max() ? 0 : first + kMillisecond;
  }
  std::erase_if(trace.calls,
                [](const auto& call) { return call.begin_unix_ns == 0 || call.worker == 0; });
  // The last ones of the last page are too many.
  if (trace.calls.size() > most) {
    std::nth_element(
        trace.calls.begin(), trace.calls.begin() + static_cast<ptrdiff_t>(most), trace.calls.end(),
        [](const auto& one, const auto& other) { return one.end_unix_ns > other.end_unix_ns; });
    trace.calls.resize(most);
  }
  std::sort(trace.calls.begin(), trace.calls.end(), [](const auto& one, const auto& other) {
    return std::tie(one.begin_unix_ns, one.task) < std::tie(other.begin_unix_ns, other.task);
  });
  return trace;
}

std::string WriteTrace(const CallTrace& trace, TraceFormat format) {
  return format == TraceFormat::kChrome ? ChromeTrace(trace) : PerfettoWriter(trace).Done();
}

}  // namespace sheaf::telemetry
