// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/call_trace.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
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

using Attempt = std::pair<std::string, uint32_t>;  // Task id, attempt.
using Calls = absl::flat_hash_map<Attempt, proto::TaskRow>;

// Who knows of an end, or at least that it runs, has the last word.
int64_t Rank(const proto::TaskRow& row) {
  return row.end_unix_ns() != 0 ? row.end_unix_ns() : row.state() == "RUNNING";
}

// Its caller tells of a call, where it ran the worker and the node.
void Merge(proto::TaskRow row, Calls& calls) {
  const auto [known, added] = calls.try_emplace({row.task_id(), row.attempt()}, row);
  if (added) return;
  if (Rank(row) < Rank(known->second)) std::swap(row, known->second);
  known->second.MergeFrom(row);
}

uint32_t NodeOf(const proto::TaskRow& call) { return ProcessId::Unpack(call.worker()).node; }

// Nil: the row has none.
TaskId IdOf(const proto::TaskRow& call) {
  return TaskId::FromHex(call.task_id()).value_or(TaskId());
}

// A row of the picture.
struct Lane {
  uint32_t node = 0;
  int32_t os_pid = 0;
  uint32_t thread = 0;
  bool operator<(const Lane& other) const {
    return std::tie(node, os_pid, thread) < std::tie(other.node, other.os_pid, other.thread);
  }
};

Lane LaneOf(const proto::TaskRow& call) { return {NodeOf(call), call.os_pid(), call.thread()}; }

std::string TitleOf(const Lane& lane) {
  return lane.thread == 0 ? absl::StrCat("worker ", lane.os_pid)
                          : absl::StrCat("worker ", lane.os_pid, " thread ", lane.thread);
}

std::string TitleOfNode(uint32_t node) { return absl::StrFormat("Node %056x", node); }

// Lanes by the number that each has, from 1; and who made whom.
class Picture {
 public:
  explicit Picture(const CallTrace& trace) {
    for (const proto::TaskRow& call : trace.calls) {
      lanes_.try_emplace(LaneOf(call), 0);
      if (const TaskId id = IdOf(call); !id.is_nil())
        ran_[{call.worker(), id.sequence_bits}].push_back(&call);
    }
    int number = 0;
    for (auto& [lane, lane_number] : lanes_) lane_number = ++number;
  }

  const std::map<Lane, int>& lanes() const { return lanes_; }
  int NumberOf(const proto::TaskRow& call) const { return lanes_.at(LaneOf(call)); }

  // The call that made another ran in the other's owner and has the number there. Of different
  // owners several may have it: then it is the one that ran when the other was made. nullptr: a
  // driver made it, or it is not remembered.
  const proto::TaskRow* ParentOf(const proto::TaskRow& call) const {
    const auto found = ran_.find({call.owner(), call.parent_sequence()});
    if (found == ran_.end()) return nullptr;
    const int64_t made = call.created_unix_ms() * kMillisecond;
    const auto distance = [&](const proto::TaskRow* other) {
      return std::max({other->begin_unix_ns() - made, made - other->end_unix_ns(), int64_t{0}});
    };
    return *std::min_element(
        found->second.begin(), found->second.end(),
        [&](const auto* one, const auto* other) { return distance(one) < distance(other); });
  }

 private:
  std::map<Lane, int> lanes_;
  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, std::vector<const proto::TaskRow*>> ran_;
};

std::string PublicState(const proto::TaskRow& call) {
  return call.state() == "CANCELLED" ? "FAILED" : call.state();
}

// --------------------------------------------------------------------------------------- Chrome

std::string Micros(int64_t ns) { return absl::StrFormat("%d.%03d", ns / 1000, ns % 1000); }

std::string ChromeName(const char* kind, uint32_t node, int lane, const std::string& name) {
  return absl::StrCat(R"({"ph":"M","name":")", kind, R"(","pid":)", node, R"(,"tid":)", lane,
                      R"(,"args":{"name":)", JsonString(name), "}}");
}

std::string ChromeCall(const proto::TaskRow& call, int lane) {
  const std::string name = JsonString(call.name());
  std::string out = absl::StrCat(R"({"cat":"task","ph":"X","name":)", name, R"(,"pid":)",
                                 NodeOf(call), R"(,"tid":)", lane);
  absl::StrAppend(&out, R"(,"ts":)", Micros(call.begin_unix_ns()), R"(,"dur":)",
                  Micros(call.end_unix_ns() - call.begin_unix_ns()));
  if (call.state() != "FINISHED") absl::StrAppend(&out, R"(,"cname":"terrible")");
  absl::StrAppend(&out, R"(,"args":{"task_id":)", JsonString(call.task_id()),
                  absl::StrFormat(R"(,"job_id":"%08x")", call.job()), R"(,"attempt_number":)",
                  call.attempt(), R"(,"func_or_class_name":)", name, R"(,"actor_id":)",
                  call.actor_id().empty() ? "null" : JsonString(call.actor_id()));
  absl::StrAppend(&out, R"(,"worker_pid":)", call.os_pid(), R"(,"state":)",
                  JsonString(PublicState(call)));
  if (call.weight() > 1) absl::StrAppend(&out, R"(,"stands_for_calls":)", call.weight());
  return out + "}}";
}

// One end of an arrow.
std::string ChromeFlow(const char* phase, const proto::TaskRow& call, const proto::TaskRow& at,
                       int lane) {
  return absl::StrCat(R"({"cat":"submit","name":"submit","ph":")", phase, R"(","id":)",
                      JsonString(call.task_id()), R"(,"pid":)", NodeOf(at), R"(,"tid":)", lane,
                      R"(,"ts":)", Micros(at.begin_unix_ns()),
                      *phase == 'f' ? R"(,"bp":"e"})" : "}");
}

std::string ChromeTrace(const CallTrace& trace) {
  const Picture picture(trace);
  std::string out = "[";
  const auto add = [&out](const std::string& event) {
    if (out.size() > 1) out += ",\n";
    out += event;
  };
  std::optional<uint32_t> node;
  for (const auto& [lane, number] : picture.lanes()) {
    if (node != lane.node) add(ChromeName("process_name", lane.node, 0, TitleOfNode(lane.node)));
    node = lane.node;
    add(ChromeName("thread_name", lane.node, number, TitleOf(lane)));
  }
  std::vector<std::pair<int64_t, std::string>> events;  // By when they are.
  events.reserve(trace.calls.size());
  for (const proto::TaskRow& call : trace.calls) {
    const int lane = picture.NumberOf(call);
    events.emplace_back(call.begin_unix_ns(), ChromeCall(call, lane));
    const proto::TaskRow* const parent = picture.ParentOf(call);
    if (parent == nullptr) continue;
    events.emplace_back(parent->begin_unix_ns(),
                        ChromeFlow("s", call, *parent, picture.NumberOf(*parent)));
    events.emplace_back(call.begin_unix_ns(), ChromeFlow("f", call, call, lane));
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& one, const auto& other) { return one.first < other.first; });
  for (const auto& [at, event] : events) add(event);
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
  explicit PerfettoWriter(const CallTrace& trace) : picture_(trace) {
    Lanes();
    Names(trace);
    for (const proto::TaskRow& call : trace.calls) {
      if (const proto::TaskRow* const parent = picture_.ParentOf(call); parent != nullptr)
        makes_[parent].push_back(Flow(call));
    }
    for (const proto::TaskRow& call : trace.calls) Call(call);
  }
  std::string Done() { return std::move(out_); }

 private:
  static uint64_t Flow(const proto::TaskRow& call) {
    return absl::HashOf(call.task_id(), call.attempt());
  }

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

  void Names(const CallTrace& trace) {
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
    for (const proto::TaskRow& call : trace.calls) {
      const auto [found, added] = names_.try_emplace(call.name(), names_.size() + 1);
      if (added) add(data.mutable_event_names(), found->second, call.name());
    }
    Write(packet);
  }

  void Call(const proto::TaskRow& call) {
    proto::perfetto::TracePacket packet;
    packet.set_trusted_packet_sequence_id(kSequence);
    packet.set_sequence_flags(kNeeded);
    packet.set_timestamp(static_cast<uint64_t>(call.begin_unix_ns()));
    proto::perfetto::TrackEvent& event = *packet.mutable_track_event();
    event.set_type(proto::perfetto::TrackEvent::SLICE_BEGIN);
    event.set_track_uuid(static_cast<uint64_t>(picture_.NumberOf(call)));
    event.set_name_iid(names_.at(call.name()));
    event.add_category_iids(1);
    const auto note = [&event](Annotation name) -> proto::perfetto::DebugAnnotation& {
      proto::perfetto::DebugAnnotation& one = *event.add_debug_annotations();
      one.set_name_iid(name);
      return one;
    };
    if (const TaskId id = IdOf(call); !id.is_nil()) {
      note(kTaskFirst).set_pointer_value(id.maker_bits);
      note(kTaskSecond).set_pointer_value(id.sequence_bits);
    }
    note(kJob).set_uint_value(call.job());
    if (call.attempt() != 0) note(kAttempt).set_uint_value(call.attempt());
    if (call.state() != "FINISHED") note(kState).set_string_value(PublicState(call));
    if (call.weight() > 1) note(kStandsFor).set_uint_value(call.weight());
    if (picture_.ParentOf(call) != nullptr) event.add_flow_ids(Flow(call));
    if (const auto made = makes_.find(&call); made != makes_.end())
      for (const uint64_t flow : made->second) event.add_flow_ids(flow);
    Write(packet);
    packet.set_timestamp(static_cast<uint64_t>(call.end_unix_ns()));
    const uint64_t track = event.track_uuid();
    event.Clear();
    event.set_type(proto::perfetto::TrackEvent::SLICE_END);
    event.set_track_uuid(track);
    Write(packet);
  }

  const Picture picture_;
  absl::flat_hash_map<std::string, uint64_t> names_;
  absl::flat_hash_map<const proto::TaskRow*, std::vector<uint64_t>> makes_;
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
  Calls calls;
  int64_t before = 0;
  bool more = true;
  while (more && calls.size() < most) {
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
    const size_t known = calls.size();
    int64_t first = std::numeric_limits<int64_t>::max();
    for (proto::TaskRow& row : *answer.mutable_tasks()) {
      if (row.end_unix_ns() == 0) continue;
      first = std::min(first, row.end_unix_ns());
      Merge(std::move(row), calls);
    }
    more = answer.truncated() && calls.size() > known;
    // Some may have ended in the same nanosecond, on other nodes; and each answer reckons the time
    // of day anew, some microseconds apart.
    before = first == std::numeric_limits<int64_t>::max() ? 0 : first + kMillisecond;
  }
  for (auto& [attempt, row] : calls) {
    if (row.begin_unix_ns() != 0 && row.worker() != 0) trace.calls.push_back(std::move(row));
  }
  std::sort(trace.calls.begin(), trace.calls.end(), [](const auto& one, const auto& other) {
    return one.begin_unix_ns() != other.begin_unix_ns()
               ? one.begin_unix_ns() < other.begin_unix_ns()
               : one.task_id() < other.task_id();
  });
  return trace;
}

std::string WriteTrace(const CallTrace& trace, TraceFormat format) {
  return format == TraceFormat::kChrome ? ChromeTrace(trace) : PerfettoWriter(trace).Done();
}

}  // namespace sheaf::telemetry
