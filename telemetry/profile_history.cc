// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/profile_history.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "telemetry/event_words.h"

namespace sheaf::telemetry {
ProfileHistory::ProfileHistory() : nodes_(1) {}

void ProfileHistory::Add(ProcessId process, const ProfilePage& page,
                         std::function<JobNumber()> job) {
  Process& added = processes_[process];
  added.page = &page;
  added.job = std::move(job);
}

void ProfileHistory::Remove(ProcessId process, Nanos now) {
  const auto found = processes_.find(process);
  if (found == processes_.end()) return;
  ReadFrom(found->second, now);
  processes_.erase(found);
}

bool ProfileHistory::Read(Nanos now) {
  bool any = false;
  for (auto& [id, process] : processes_) any |= ReadFrom(process, now);
  AgeWindows(now);
  KeepBounds();
  return any;
}

bool ProfileHistory::ReadFrom(Process& process, Nanos now) {
  const ProfileHeader& header = process.page->header;
  const uint64_t samples = header.samples.load(std::memory_order_relaxed);
  if (std::exchange(process.samples, samples) == samples) return false;
  const uint64_t nodes =
      std::min<uint64_t>(header.nodes.load(std::memory_order_acquire), kProfileNodes - 1);
  process.self_us.resize(std::max<size_t>(process.self_us.size(), nodes + 1));
  process.nodes.resize(process.self_us.size());
  const JobNumber job = process.job();
  Window& window = WindowAt(now);
  for (uint32_t i = 1; i <= nodes; ++i) {
    const uint64_t self_us = process.page->nodes[i].self_us.load(std::memory_order_relaxed);
    const uint64_t before = std::exchange(process.self_us[i], self_us);
    if (self_us > before) window.self_us[NodeOf(process, i, job)] += self_us - before;
  }
  return true;
}

uint32_t ProfileHistory::NodeOf(Process& process, uint32_t number, JobNumber job) {
  if (process.nodes[number] != 0) return process.nodes[number];
  const uint64_t place = process.page->nodes[number].place.load(std::memory_order_relaxed);
  const auto parent = static_cast<uint32_t>(place >> 32);
  // Of a misbehaving writer, which could else send us in circles.
  const uint32_t below = parent == 0 || parent >= number ? 0 : NodeOf(process, parent, job);
  return process.nodes[number] = Intern(below, FrameOf(process, static_cast<uint32_t>(place)), job);
}

uint32_t ProfileHistory::FrameOf(Process& process, uint32_t number) {
  if (number >= kProfileFrames) number = kProfileFrames - 1;
  if (number >= process.frames.size()) process.frames.resize(number + 1);
  if (process.frames[number] != 0) return process.frames[number] - 1;
  (void)process.page->header.frames.load(std::memory_order_acquire);
  const FrameSlot& slot = process.page->frames[number];
  const uint32_t known =
      InternFrame({LoadText(slot.function), LoadText(slot.file),
                   static_cast<uint32_t>(slot.line.load(std::memory_order_relaxed))});
  process.frames[number] = known + 1;
  return known;
}

uint32_t ProfileHistory::InternFrame(const Frame& frame) {
  const auto [known, is_new] =
      frame_numbers_.try_emplace(absl::StrCat(frame.function, "\n", frame.file, "\n", frame.line),
                                 static_cast<uint32_t>(frames_.size()));
  if (is_new) frames_.push_back(frame);
  return known->second;
}

uint32_t ProfileHistory::Intern(uint32_t parent, uint32_t frame, JobNumber job) {
  const auto [known, is_new] = node_numbers_.try_emplace(std::tuple(parent, frame, job),
                                                         static_cast<uint32_t>(nodes_.size()));
  if (is_new) nodes_.push_back({parent, frame, job});
  return known->second;
}

ProfileHistory::Window& ProfileHistory::WindowAt(Nanos now) {
  const Nanos begin = now - now % kShortWindow;
  if (windows_.empty() || windows_.back().begin < begin)
    windows_.push_back({begin, kShortWindow, {}});
  return windows_.back();
}

// Those that are no longer young become parts of long ones.
void ProfileHistory::AgeWindows(Nanos now) {
  while (!windows_.empty() && windows_.front().begin + windows_.front().length < now - kKeptFor)
    windows_.pop_front();
  for (size_t i = 0; i < windows_.size();) {
    Window& window = windows_[i];
    if (window.length == kLongWindow) {
      ++i;
      continue;
    }
    if (window.begin > now - kShortWindowsFor) return;
    const Nanos begin = window.begin - window.begin % kLongWindow;
    if (i == 0 || windows_[i - 1].begin != begin) {
      window.begin = begin;
      window.length = kLongWindow;
      continue;
    }
    for (const auto& [node, self_us] : window.self_us) windows_[i - 1].self_us[node] += self_us;
    windows_.erase(windows_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void ProfileHistory::KeepBounds() {
  size_t times = 0;
  for (const Window& window : windows_) times += window.self_us.size();
  while (times > kMostTimes) {
    times -= windows_.front().self_us.size();
    windows_.pop_front();
  }
  if (nodes_.size() <= kMostNodes) return;
  DropUnused();
  while (nodes_.size() > kMostNodes && !windows_.empty()) {
    windows_.pop_front();
    DropUnused();
  }
}

// Numbers nodes and frames anew, without those that no window has.
void ProfileHistory::DropUnused() {
  std::vector<bool> used(nodes_.size());
  for (const Window& window : windows_) {
    for (const auto& [node, self_us] : window.self_us) {
      for (uint32_t up = node; up != 0 && !used[up]; up = nodes_[up].parent) used[up] = true;
    }
  }
  const std::vector<Frame> frames = std::exchange(frames_, {});
  const std::vector<Node> nodes = std::exchange(nodes_, std::vector<Node>(1));
  frame_numbers_.clear();
  node_numbers_.clear();
  std::vector<uint32_t> renamed(nodes.size());
  for (uint32_t i = 1; i < nodes.size(); ++i) {
    if (!used[i]) continue;
    renamed[i] =
        Intern(renamed[nodes[i].parent], InternFrame(frames[nodes[i].frame]), nodes[i].job);
  }
  for (Window& window : windows_) {
    absl::flat_hash_map<uint32_t, uint64_t> times;
    for (const auto& [node, self_us] : window.self_us) times[renamed[node]] = self_us;
    window.self_us = std::move(times);
  }
  for (auto& [id, process] : processes_) {
    std::fill(process.nodes.begin(), process.nodes.end(), 0);
    process.frames.clear();
  }
}

// "f" is what functions named f are called, wherever they are defined.
bool ProfileHistory::IsCalled(const Frame& frame, const std::string& function) {
  const std::string_view name = frame.function;
  if (!name.ends_with(function)) return false;
  return name.size() == function.size() || name[name.size() - function.size() - 1] == '.';
}

// By node, those that are not asked for as 0.
std::vector<uint64_t> ProfileHistory::TimesOf(const proto::StateQuery& query, Nanos to_wall) const {
  std::vector<uint64_t> times(nodes_.size());
  if (!query.id().empty()) {
    for (const auto& [id, process] : processes_) {
      if (id.ToString() != query.id()) continue;
      for (size_t i = 0; i < process.nodes.size(); ++i)
        times[process.nodes[i]] += process.self_us[i];
    }
    times[0] = 0;
    return times;
  }
  for (const Window& window : windows_) {
    const Nanos begin = window.begin + to_wall;
    if (begin + window.length <= query.from_unix_ns()) continue;
    if (query.to_unix_ns() != 0 && begin >= query.to_unix_ns()) continue;
    for (const auto& [node, self_us] : window.self_us) times[node] += self_us;
  }
  std::vector<bool> wanted(nodes_.size(), query.function().empty());
  for (uint32_t i = 1; i < nodes_.size(); ++i) {
    if (!query.function().empty()) {
      wanted[i] = (nodes_[i].parent != 0 && wanted[nodes_[i].parent]) ||
                  IsCalled(frames_[nodes_[i].frame], query.function());
    }
    if (!wanted[i] || (query.job() != 0 && nodes_[i].job != query.job())) times[i] = 0;
  }
  return times;
}

void ProfileHistory::AddProfile(const proto::StateQuery& query, uint32_t limit, Nanos to_wall,
                                proto::StateAnswer& answer) const {
  const std::vector<uint64_t> times = TimesOf(query, to_wall);
  std::vector<uint32_t> most;
  for (uint32_t i = 1; i < times.size(); ++i) {
    if (times[i] != 0) most.push_back(i);
  }
  std::sort(most.begin(), most.end(), [&](uint32_t a, uint32_t b) { return times[a] > times[b]; });
  std::vector<bool> shown(nodes_.size());
  size_t rows = 0;
  for (const uint32_t node : most) {
    if (rows >= limit) {
      answer.set_truncated(true);
      break;
    }
    for (uint32_t up = node; up != 0 && !shown[up]; up = nodes_[up].parent, ++rows)
      shown[up] = true;
  }
  std::vector<uint32_t> number(nodes_.size());
  for (uint32_t i = 1; i < nodes_.size(); ++i) {
    if (!shown[i]) continue;
    proto::ProfileNode& row = *answer.add_profile();
    number[i] = static_cast<uint32_t>(answer.profile_size());
    row.set_parent(number[nodes_[i].parent]);
    const Frame& frame = frames_[nodes_[i].frame];
    row.set_function(frame.function);
    row.set_file(frame.file);
    row.set_line(frame.line);
    row.set_job(nodes_[i].job);
    row.set_self_us(times[i]);
  }
}

}  // namespace sheaf::telemetry
