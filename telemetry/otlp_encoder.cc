// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/otlp_encoder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/utf8.h"
#include "base/version.h"
#include "proto/otlp_trace.pb.h"
#include "telemetry/row_filters.h"

namespace sheaf::telemetry {
namespace {

// Ids are bytes in the order of their digits.
void AppendBigEndian(uint64_t value, std::string* out) {
  for (int shift = 56; shift >= 0; shift -= 8) out->push_back(static_cast<char>(value >> shift));
}

proto::otlp::AnyValue& Value(const char* key, proto::otlp::Span& span) {
  proto::otlp::KeyValue& attribute = *span.add_attributes();
  attribute.set_key(key);
  return *attribute.mutable_value();
}
void Add(const char* key, std::string text, proto::otlp::Span& span) {
  Value(key, span).set_string_value(std::move(text));
}
void Add(const char* key, int64_t number, proto::otlp::Span& span) {
  Value(key, span).set_int_value(number);
}

// Those of Ray's own spans, by Ray's names: programs and boards ask for them.
void AddRayAttributes(const CallSpan& call, const std::string& name, proto::otlp::Span& span) {
  const TaskHistory::Place& place = *call.place;
  Add("ray.function", name, span);
  if (place.kind == CallKind::kTask) {
    Add("ray.remote", "function", span);
  } else {
    Add("ray.remote", "actor", span);
    const size_t dot = name.rfind('.');
    Add("ray.actor_class", name.substr(0, std::min(dot, name.size())), span);
    if (dot != std::string::npos) Add("ray.actor_method", name.substr(dot + 1), span);
    if (!place.actor.is_nil()) Add("ray.actor_id", place.actor.ToHex(), span);
  }
  Add("ray.pid", absl::StrCat(place.os_pid), span);
  Add("ray.job_id", absl::StrFormat("%08x", place.job), span);
  Add("ray.node_id", absl::StrFormat("%056x", place.process.node), span);
  Add("ray.worker_id", absl::StrFormat("%016x", place.process.packed()), span);
  Add("ray.task_id", call.event.task.ToHex(), span);
}

void Fill(const CallSpan& call, Nanos to_wall, proto::otlp::Span& span) {
  const TaskEvent& event = call.event;
  const TaskHistory::Place& place = *call.place;
  AppendBigEndian(call.trace.trace_high, span.mutable_trace_id());
  AppendBigEndian(call.trace.trace_low, span.mutable_trace_id());
  AppendBigEndian(
      SpanOf(place.process.packed(), event.task.sequence_bits, TagOf(event.task, event.attempt)),
      span.mutable_span_id());
  if (call.trace.span != 0) AppendBigEndian(call.trace.span, span.mutable_parent_span_id());
  span.set_flags(static_cast<uint32_t>(call.trace.flags & 0xff));
  const std::string name = ValidUtf8(place.function);
  span.set_name(name + " ray.remote_worker");
  span.set_kind(proto::otlp::Span::CONSUMER);
  const Nanos end = event.end + to_wall;
  span.set_start_time_unix_nano(static_cast<uint64_t>(event.begin + to_wall));
  span.set_end_time_unix_nano(static_cast<uint64_t>(end));
  AddRayAttributes(call, name, span);
  Add("sheaf.attempt", event.attempt, span);
  Add("sheaf.state", OutcomeName(event.outcome), span);
  // How long it waited for a worker, its arguments and its turn.
  if (event.created_ms != 0 && event.begin != event.end) {
    const Nanos created = UnixMs(event.created_ms, end) * kMillisecond;
    Add("sheaf.queued_ms", std::max<Nanos>(event.begin + to_wall - created, 0) / kMillisecond,
        span);
  }
  if (event.weight > 1) Add("sheaf.stands_for_calls", event.weight, span);
  if (event.outcome == Outcome::kFinished) return;
  Add("sheaf.error_type", ListedErrorName(event.error), span);
  span.mutable_status()->set_code(proto::otlp::Status::ERROR);
  span.mutable_status()->set_message(ValidUtf8(call.text));
}

}  // namespace

std::string EncodeSpans(std::span<const CallSpan> spans, const SpanAttributes& resource,
                        Nanos to_wall) {
  proto::otlp::ExportTraceServiceRequest request;
  proto::otlp::ResourceSpans& all = *request.add_resource_spans();
  for (const auto& [key, text] : resource) {
    proto::otlp::KeyValue& attribute = *all.mutable_resource()->add_attributes();
    attribute.set_key(ValidUtf8(key));
    attribute.mutable_value()->set_string_value(ValidUtf8(text));
  }
  proto::otlp::ScopeSpans& scope = *all.add_scope_spans();
  scope.mutable_scope()->set_name("sheaf");
  scope.mutable_scope()->set_version(std::string(kSheafVersion));
  for (const CallSpan& call : spans) Fill(call, to_wall, *scope.add_spans());
  return request.SerializeAsString();
}

}  // namespace sheaf::telemetry
