// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/core.h"

#include "api/train_members.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/process.h"

namespace sheaf::inline v1::train::internal {
namespace {

constexpr int kMostReplacements = 5;  // Of one place, while the group is formed once.

std::chrono::nanoseconds Until(Nanos deadline) {
  return std::chrono::nanoseconds(std::max(deadline - MonotonicNow(), 100 * kMillisecond));
}

std::string Words(const std::map<std::string, double>& resources) {
  return absl::StrCat("{", absl::StrJoin(resources, ", ", absl::PairFormatter(": ")), "}");
}

}  // namespace

TrainMembers::TrainMembers(const Options& options) : options_(options) {}

TrainMembers::~TrainMembers() {
  try {
    for (const Process& process : processes_) Kill(process.actor);
    if (group_.has_value()) group_->Remove();
  } catch (const Error&) {
    // The cluster is gone, and they with it.
  }
}

int TrainMembers::Form() {
  const Nanos deadline = sheaf::internal::DeadlineAfter(options_.placement_timeout);
  if (!group_.has_value()) {
    group_ =
        CreateGroup(std::vector<Bundle>(static_cast<size_t>(options_.workers), options_.resources),
                    options_.policy);
  }
  if (!group_->Wait(Until(deadline))) ThrowNoRoom();

  std::map<int, Process> by_bundle;  // Those that have answered.
  std::map<int, Process> asked;
  for (Process& process : processes_) asked.emplace(process.bundle, std::move(process));
  processes_.clear();
  std::map<int, int> begun;
  while (by_bundle.size() < static_cast<size_t>(options_.workers)) {
    for (int bundle = 0; bundle < options_.workers; ++bundle) {
      if (by_bundle.contains(bundle) || asked.contains(bundle)) continue;
      ++begun[bundle];
      asked.emplace(bundle, Begin(bundle));
    }
    std::map<int, ObjectRef<Place>> answers;
    for (const auto& [bundle, process] : asked)
      answers.emplace(bundle, process.actor.Task(&TrainWorker::Describe).Remote());
    for (auto& [bundle, answer] : answers) {
      const sheaf::Result<Place> place = TryGet(answer, Until(deadline));
      Process process = std::move(asked.extract(bundle).mapped());
      if (place.ok()) {
        process.place = *place;
        by_bundle.emplace(bundle, std::move(process));
        continue;
      }
      Kill(process.actor);
      if (place.kind() == ErrorKind::kTimeout || MonotonicNow() > deadline) ThrowNoRoom();
      if (begun[bundle] > kMostReplacements) {
        throw TrainingError("workers end as soon as they start: " + place.error().message,
                            std::nullopt, place.error(), {});
      }
    }
  }
  std::vector<uint32_t> nodes;  // In the order of their first bundles.
  for (const auto& [bundle, process] : by_bundle) {
    if (std::find(nodes.begin(), nodes.end(), process.place.node) == nodes.end())
      nodes.push_back(process.place.node);
  }
  for (const uint32_t node : nodes) {
    for (auto& [bundle, process] : by_bundle) {
      if (process.place.node == node) processes_.push_back(process);
    }
  }
  return static_cast<int>(begun.size());
}

size_t TrainMembers::nodes() const {
  size_t count = 0;
  for (size_t i = 0; i < processes_.size(); ++i)
    count += i == 0 || processes_[i].place.node != processes_[i - 1].place.node;
  return count;
}

void TrainMembers::Locate(Start& start) const {
  const uint32_t node = processes_[static_cast<size_t>(start.rank)].place.node;
  start.local_rank = start.local_world_size = 0;
  start.node_rank = -1;
  for (size_t rank = 0; rank < processes_.size(); ++rank) {
    const bool here = processes_[rank].place.node == node;
    start.local_world_size += here;
    start.local_rank += here && static_cast<int>(rank) < start.rank;
    if (static_cast<int>(rank) <= start.rank)
      start.node_rank +=
          rank == 0 || processes_[rank].place.node != processes_[rank - 1].place.node;
  }
}

void TrainMembers::End(const Process& process) {
  Kill(process.actor);
  std::erase_if(processes_,
                [bundle = process.bundle](const Process& other) { return other.bundle == bundle; });
}

Process TrainMembers::Begin(int bundle) const {
  Process process;
  process.bundle = bundle;
  process.actor = Actor<TrainWorker>()
                      .Resources(options_.resources)
                      .Place(Strategy::Group(*group_, bundle, true))
                      .Environment(options_.environment)
                      .ConcurrencyGroup(kControl, kControlThreads)
                      .Remote();
  return process;
}

void TrainMembers::ThrowNoRoom() const {
  throw TrainingError(
      absl::StrCat("no room for ", options_.workers, " workers of ", Words(options_.resources),
                   " each within ", options_.placement_timeout / std::chrono::seconds(1),
                   " s: free are ", Words(AvailableResources()), " of ", Words(ClusterResources()),
                   "; ask for less, add nodes, or raise Options::placement_timeout"),
      std::nullopt, {}, {});
}

}  // namespace sheaf::inline v1::train::internal
