// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/observe/stack_text.h"

#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/text/json.h"

namespace sheaf::dashboard {
namespace {

std::string Shown(const std::string& text) { return absl::Utf8SafeCHexEscape(text); }

const char* Kind(const proto::ProcessStacks& process) {
  return process.driver() ? "driver" : "worker";
}

void AppendThread(const proto::ThreadStack& thread, std::string& text) {
  absl::StrAppend(&text, thread.coroutine() ? "Coroutine " : "Thread ");
  if (thread.os_thread() != 0) absl::StrAppend(&text, thread.os_thread(), " ");
  absl::StrAppend(&text, "\"", Shown(thread.name()), "\"");
  if (!thread.words().empty()) absl::StrAppend(&text, ": ", Shown(thread.words()));
  text += "\n";
  for (const proto::StackFrame& frame : thread.frames()) {
    absl::StrAppend(&text, "    ", Shown(frame.function()), " (", Shown(frame.file()));
    if (frame.line() != 0) absl::StrAppend(&text, ":", frame.line());
    text += ")\n";
  }
}

std::string ThreadJson(const proto::ThreadStack& thread) {
  JsonArray frames;
  for (const proto::StackFrame& frame : thread.frames()) {
    frames.Add(JsonObject()
                   .Add("function", JsonString(frame.function()))
                   .Add("file", JsonString(frame.file()))
                   .Add("line", frame.line() == 0 ? "null" : JsonNumber(uint64_t{frame.line()}))
                   .Done());
  }
  return JsonObject()
      .Add("name", JsonString(thread.name()))
      .Add("os_thread", thread.os_thread() == 0 ? "null" : JsonNumber(int64_t{thread.os_thread()}))
      .Add("coroutine", JsonBool(thread.coroutine()))
      .Add("words", thread.words().empty() ? "null" : JsonString(thread.words()))
      .Add("frames", frames.Done())
      .Done();
}

}  // namespace

std::string StacksText(const proto::StateAnswer& answer) {
  std::string text;
  for (const proto::ProcessStacks& process : answer.stacks()) {
    if (!text.empty()) text += "\n";
    const ProcessId id = ProcessId::Unpack(process.process());
    absl::StrAppend(&text, "Process ", id.ToString(), ": pid ", process.os_pid(), ", ",
                    Kind(process), " of node ", id.node);
    if (!process.running().empty()) absl::StrAppend(&text, ", ", Shown(process.running()));
    text += "\n";
    if (!process.words().empty()) absl::StrAppend(&text, "(", Shown(process.words()), ")\n");
    for (const proto::ThreadStack& thread : process.threads()) AppendThread(thread, text);
  }
  for (const uint32_t node : answer.late_nodes())
    absl::StrAppend(&text, "Node ", node, " has not answered in time.\n");
  return text;
}

std::string StacksJson(const proto::StateAnswer& answer) {
  JsonArray stacks, late;
  for (const proto::ProcessStacks& process : answer.stacks()) {
    JsonArray threads;
    for (const proto::ThreadStack& thread : process.threads()) threads.Add(ThreadJson(thread));
    stacks.Add(
        JsonObject()
            .Add("process", JsonString(ProcessId::Unpack(process.process()).ToString()))
            .Add("os_pid", JsonNumber(int64_t{process.os_pid()}))
            .Add("kind", JsonString(Kind(process)))
            .Add("running", process.running().empty() ? "null" : JsonString(process.running()))
            .Add("words", process.words().empty() ? "null" : JsonString(process.words()))
            .Add("threads", threads.Done())
            .Done());
  }
  for (const uint32_t node : answer.late_nodes()) late.Add(JsonNumber(uint64_t{node}));
  return JsonObject()
      .Add("stacks", stacks.Done())
      .Add("truncated", JsonBool(answer.truncated()))
      .Add("late_nodes", late.Done())
      .Done();
}

}  // namespace sheaf::dashboard
