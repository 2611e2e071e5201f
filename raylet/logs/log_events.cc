// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/logs/log_events.h"

#include <utility>

#include "absl/container/btree_set.h"
#include "absl/status/statusor.h"
#include "base/log.h"
#include "base/text/ecs.h"

namespace sheaf {
namespace {

constexpr size_t kMaxLine = 1 << 20;  // Longer ones are cut into several.
constexpr int kPiecesAtOnce = 4;      // Of one file, before the others have their turn.

}  // namespace

void LogEvents::Add(EventSource source) {
  thread_.Post([this, source = std::move(source)]() mutable {
    Stream& stream = streams_[source.name];
    stream.source = std::move(source);
    const MutexLock lock(mutex_);
    read_.emplace(stream.source.name, 0);
  });
}

void LogEvents::Know(const std::string& process, std::function<EventFields()> more) {
  thread_.Post([this, process, more = std::move(more)] { known_[process] = more; });
}

std::string LogEvents::FieldsOf(const EventSource& source) const {
  JsonObject fields = fields_;
  for (const auto& [name, value] : source.fields) fields.Add(name, JsonString(value));
  if (const auto known = known_.find(source.process); known != known_.end()) {
    for (const auto& [name, value] : known->second()) fields.Add(name, JsonString(value));
  }
  return fields.Done();
}

// Of processes none of whose files is read any more.
void LogEvents::ForgetUnused() {
  absl::btree_set<std::string> used;
  for (const auto& [name, stream] : streams_) used.insert(stream.source.process);
  absl::erase_if(known_, [&](const auto& known) { return !used.contains(known.first); });
}

bool LogEvents::IsBehind(const std::string& name) const {
  const uint64_t moved = files_.MovedOut(name);
  const MutexLock lock(mutex_);
  const auto read = read_.find(name);
  return read != read_.end() && read->second < moved;
}

void LogEvents::End(const std::string& name) {
  thread_.Post([this, name] {
    const auto found = streams_.find(name);
    if (found != streams_.end()) found->second.ended = true;
  });
  Look();
}

void LogEvents::Look() {
  if (look_is_due_.exchange(true)) return;
  thread_.Post([this] {
    look_is_due_ = false;
    LookNow();
  });
}

void LogEvents::Stop() {
  thread_.Post([this] {
    for (auto& [name, stream] : streams_) stream.ended = true;
    LookNow();
  });
  thread_.Stop();
}

void LogEvents::LookNow() {
  bool ended = false;
  for (auto it = streams_.begin(); it != streams_.end();) {
    Stream& stream = it->second;
    int pieces = 0;
    bool more = true;
    while (more && (stream.ended || pieces++ < kPiecesAtOnce)) more = ReadSome(stream);
    if (stream.ended && !failing_) {
      {
        const MutexLock lock(mutex_);
        read_.erase(it->first);
      }
      it = streams_.erase(it);
      ended = true;
    } else {
      ++it;
    }
  }
  if (ended) ForgetUnused();
}

bool LogEvents::ReadSome(Stream& stream) {
  proto::LogQuestion question;
  question.set_name(stream.source.name);
  question.set_offset(stream.offset);
  question.set_mark(stream.mark);
  const absl::StatusOr<proto::LogPiece> piece = files_.Read(question);
  if (!piece.ok()) return false;  // It is empty and gone, or not there yet.
  if (piece->anew()) stream.partial.clear();
  if (!Write(stream, *piece, stream.ended && piece->left() == 0)) return false;
  stream.offset = piece->next();
  stream.mark = piece->mark();
  {
    const MutexLock lock(mutex_);
    read_[stream.source.name] = stream.offset;
  }
  return piece->left() > 0;
}

// False: the disk does not take it; nothing has changed.
bool LogEvents::Write(Stream& stream, const proto::LogPiece& piece, bool is_last) {
  std::string text = stream.partial + piece.bytes();
  std::string_view rest = text;
  std::string lines;
  const std::string fields = FieldsOf(stream.source);
  const auto add = [&](std::string_view line) {
    lines += EcsLine({.unix_ns = UnixNow(),
                      .level = stream.source.level,
                      .message = line,
                      .dataset = stream.source.dataset,
                      .os_pid = stream.source.os_pid,
                      .sheaf = fields});
    lines += '\n';
  };
  while (true) {
    const size_t end = rest.substr(0, kMaxLine).find('\n');
    if (end != std::string_view::npos) {
      add(rest.substr(0, end));
      rest.remove_prefix(end + 1);
    } else if (rest.size() >= kMaxLine) {
      add(rest.substr(0, kMaxLine));
      rest.remove_prefix(kMaxLine);
    } else {
      break;
    }
  }
  if (is_last && !rest.empty()) add(std::exchange(rest, {}));
  if (!lines.empty()) {
    const absl::Status written = out_.Append(lines);
    if (!written.ok() && !std::exchange(failing_, true)) {
      Log(LogLevel::kError, "what processes print is not written as events until this has passed: ",
          written.ToString());
    }
    if (!written.ok()) return false;
    if (std::exchange(failing_, false))
      Log(LogLevel::kInfo, "what processes print is written as events again");
  }
  stream.partial = std::string(rest);
  return true;
}

}  // namespace sheaf
