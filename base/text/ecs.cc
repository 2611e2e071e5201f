// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/text/ecs.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <optional>

#include "absl/strings/str_format.h"
#include "base/text/json.h"
#include "base/text/json_members.h"

namespace sheaf {
namespace {

constexpr char kVersion[] = "1.6.0";

const std::string& HostName() {
  static const std::string& name = *new std::string([] {
    char text[256] = {};
    return gethostname(text, sizeof(text) - 1) == 0 ? std::string(text) : std::string();
  }());
  return name;
}

// "2026-11-26T13:42:00.123Z"
std::string Timestamp(Nanos unix_ns) {
  const time_t seconds = unix_ns / kSecond;
  tm parts{};
  gmtime_r(&seconds, &parts);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900,
                         parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                         unix_ns % kSecond / kMillisecond);
}

// "process.pid" and "process" speak of the same.
bool Overlap(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  return b.starts_with(a) && (a.size() == b.size() || b[a.size()] == '.');
}

// The members of one line: those of the message, and what it does not say itself.
class Line {
 public:
  explicit Line(std::string_view message) {
    if (message.starts_with('{')) own_ = MembersOf(message);
    if (own_ && !own_->names.empty()) text_.append(own_->text);
  }
  void Add(std::string_view name, std::string_view json) {
    const bool says = own_ && std::any_of(own_->names.begin(), own_->names.end(),
                                          [&](std::string_view one) { return Overlap(one, name); });
    if (says) return;
    if (text_.size() > 1) text_ += ',';
    text_.append(JsonString(name)).append(":").append(json);
  }
  std::string Done() { return text_ + "}"; }

 private:
  std::optional<JsonMembers> own_;
  std::string text_ = "{";
};

}  // namespace

std::string EcsLine(const EcsEvent& event) {
  Line line(event.message);
  line.Add("@timestamp", JsonString(Timestamp(event.unix_ns)));
  line.Add("log.level", JsonString(event.level));
  line.Add("message", JsonString(event.message));
  line.Add("ecs.version", JsonString(kVersion));
  line.Add("process", JsonObject().Add("pid", JsonNumber(int64_t{event.os_pid})).Done());
  line.Add("host", JsonObject().Add("name", JsonString(HostName())).Done());
  line.Add("service", JsonObject().Add("name", JsonString("sheaf")).Done());
  line.Add("event", JsonObject().Add("dataset", JsonString(event.dataset)).Done());
  if (!event.sheaf.empty()) line.Add("sheaf", event.sheaf);
  return line.Done();
}

}  // namespace sheaf
