// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/actors/actor_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sheaf {

ActorEntry* ActorTable::Find(const ActorId& id) {
  const auto found = actors_.find(id);
  return found == actors_.end() ? nullptr : &found->second;
}

const ActorEntry* ActorTable::Find(const ActorId& id) const {
  return const_cast<ActorTable*>(this)->Find(id);
}

const ActorEntry* ActorTable::FindByName(std::string_view name_space, std::string_view name) const {
  if (name.empty()) return nullptr;
  const auto found = by_name_.find({std::string(name_space), std::string(name)});
  return found == by_name_.end() ? nullptr : Find(found->second);
}

ActorEntry& ActorTable::Put(const ActorId& id, proto::ActorRecord record) {
  ActorEntry& entry = actors_[id];
  Unindex(id, entry);
  entry.record = std::move(record);
  const proto::ActorInfo& info = entry.info();
  if (!entry.is_alive()) {
    dead_.push_back(id);
    return entry;
  }
  if (!info.name().empty()) by_name_[{info.name_space(), info.name()}] = id;
  if (info.detached()) {
    ++detached_of_job_[info.job()];
    if (info.state() != proto::ActorInfo::ALIVE) starting_.insert(id);
  }
  return entry;
}

void ActorTable::Unindex(const ActorId& id, const ActorEntry& entry) {
  const proto::ActorInfo& info = entry.info();
  if (info.actor_id().empty()) return;  // Just made.
  if (!entry.is_alive()) {
    dead_.erase(std::remove(dead_.begin(), dead_.end(), id), dead_.end());
    return;
  }
  const auto named = by_name_.find({info.name_space(), info.name()});
  if (named != by_name_.end() && named->second == id) by_name_.erase(named);
  starting_.erase(id);
  if (info.detached()) {
    const auto count = detached_of_job_.find(info.job());
    if (count != detached_of_job_.end() && --count->second == 0) detached_of_job_.erase(count);
  }
}

void ActorTable::Erase(const ActorId& id) {
  const auto found = actors_.find(id);
  if (found == actors_.end()) return;
  Unindex(id, found->second);
  actors_.erase(found);
}

std::vector<ActorId> ActorTable::Surplus(size_t max) const {
  if (dead_.size() <= max) return {};
  return {dead_.begin(), dead_.end() - static_cast<std::ptrdiff_t>(max)};
}

std::vector<ActorId> ActorTable::DetachedOn(NodeNumber node) const {
  std::vector<ActorId> ids;
  for (const auto& [id, entry] : actors_) {
    const bool runs_there = entry.info().state() == proto::ActorInfo::ALIVE
                                ? ProcessId::Unpack(entry.info().process()).node == node
                                : entry.asked == node;
    if (entry.is_alive() && entry.info().detached() && runs_there) ids.push_back(id);
  }
  return ids;
}

std::vector<ActorId> ActorTable::NamedOf(ProcessId creator) const {
  std::vector<ActorId> ids;
  // The ids of one maker stand together: they begin with it.
  for (auto at = actors_.lower_bound(ActorId{creator.packed(), 0});
       at != actors_.end() && at->first.maker_bits == creator.packed(); ++at) {
    if (at->second.is_alive() && !at->second.info().detached()) ids.push_back(at->first);
  }
  return ids;
}

std::vector<ActorId> ActorTable::NamedOfNode(NodeNumber node) const {
  std::vector<ActorId> ids;
  for (auto at = actors_.lower_bound(ActorId{ProcessId{node, 0}.packed(), 0});
       at != actors_.end() && at->first.maker().node == node; ++at) {
    if (at->second.is_alive() && !at->second.info().detached()) ids.push_back(at->first);
  }
  return ids;
}

void ActorTable::PutRow(const ActorId& id, proto::ActorRow row, size_t max_dead) {
  const auto known = rows_.find(id);
  const bool was_dead = known != rows_.end() && known->second.state() == "DEAD";
  if (row.state() == "DEAD" && !was_dead) dead_rows_.push_back(id);
  rows_[id] = std::move(row);
  if (dead_rows_.size() > max_dead) {
    rows_.erase(dead_rows_.front());
    dead_rows_.pop_front();
  }
}

void ActorTable::EraseRowsOf(ProcessId creator) {
  auto at = rows_.lower_bound(ActorId{creator.packed(), 0});
  while (at != rows_.end() && at->first.maker_bits == creator.packed()) at = rows_.erase(at);
}

void ActorTable::EraseRowsOfNode(NodeNumber node) {
  auto at = rows_.lower_bound(ActorId{ProcessId{node, 0}.packed(), 0});
  while (at != rows_.end() && at->first.maker().node == node) at = rows_.erase(at);
}

proto::ActorRow RowOf(const proto::ActorInfo& info) {
  proto::ActorRow row;
  const auto id = ActorId::FromBinary(info.actor_id());
  if (id.ok()) row.set_actor_id(id->ToHex());
  row.set_class_name(info.class_name());
  row.set_name(info.name());
  row.set_name_space(info.name_space());
  row.set_state(proto::ActorInfo::State_Name(info.state()));
  row.set_process(info.process());
  row.set_os_pid(info.os_pid());
  row.set_restarts(info.restarts());
  row.set_job(info.job());
  row.set_death(info.death().message());
  row.set_detached(info.detached());
  return row;
}

}  // namespace sheaf
