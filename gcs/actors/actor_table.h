// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Named and detached actors, by id and by name, and the rows that creators reported of the others.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "proto/gcs.pb.h"

namespace sheaf {

// One named or detached actor. `record` is what is (or, for STARTING, was) on disk; all else is
// soft.
struct ActorEntry {
  proto::ActorRecord record;
  NodeNumber asked = 0;     // The raylet that was told to start it. 0: none yet.
  NodeNumber avoid = 0;     // The raylet that gave it back: not asked again at once. 0: none.
  int given_back = 0;       // So often since it last ran.
  bool infeasible = false;  // No node could ever hold it, when one was looked for last.
  Nanos next_order = 0;     // When the raylet is told (again) to start it, if no report comes.
                            // kForever: not before something happens.
  // Raylets that were told to end this incarnation and all before it, and have not said yet that
  // they are gone; and when they are told again.
  std::map<NodeNumber, uint32_t> ending;
  Nanos next_kill = 0;
  bool unaccounted = false;  // From disk, and no raylet has reported it to this GCS yet.
  Nanos alive_since = 0;
  int quick_deaths = 0;  // In a row, for the back-off.

  const proto::ActorInfo& info() const { return record.info(); }
  bool is_alive() const { return record.info().state() != proto::ActorInfo::DEAD; }
};

class ActorTable {
 public:
  ActorEntry* Find(const ActorId& id);
  const ActorEntry* Find(const ActorId& id) const;
  // The living actor of that name, or nullptr.
  const ActorEntry* FindByName(std::string_view name_space, std::string_view name) const;
  // Adds it, or replaces its record.
  ActorEntry& Put(const ActorId& id, proto::ActorRecord record);
  void Erase(const ActorId& id);
  // Those that died first, when more than `max` dead ones are remembered.
  std::vector<ActorId> Surplus(size_t max) const;

  // Living ones.
  std::vector<ActorId> DetachedOn(NodeNumber node) const;   // There, or asked to start there.
  std::vector<ActorId> NamedOf(ProcessId creator) const;    // Not detached.
  std::vector<ActorId> NamedOfNode(NodeNumber node) const;  // Not detached, of creators there.
  // Detached ones that are to start, or start.
  const std::set<ActorId>& Starting() const { return starting_; }
  bool HasDetachedOf(JobNumber job) const { return detached_of_job_.contains(job); }

  // Soft rows. A row of a dead actor is remembered for a while.
  void PutRow(const ActorId& id, proto::ActorRow row, size_t max_dead);
  void EraseRowsOf(ProcessId creator);
  void EraseRowsOfNode(NodeNumber node);

  const std::map<ActorId, ActorEntry>& all() const { return actors_; }
  std::map<ActorId, ActorEntry>& all() { return actors_; }
  const std::map<ActorId, proto::ActorRow>& rows() const { return rows_; }
  size_t living() const { return actors_.size() - dead_.size(); }

 private:
  void Unindex(const ActorId& id, const ActorEntry& entry);

  std::map<ActorId, ActorEntry> actors_;
  std::map<std::pair<std::string, std::string>, ActorId> by_name_;  // Living ones.
  std::map<JobNumber, size_t> detached_of_job_;                     // Living ones.
  std::set<ActorId> starting_;
  std::deque<ActorId> dead_;  // In the order of their deaths.
  std::map<ActorId, proto::ActorRow> rows_;
  std::deque<ActorId> dead_rows_;
};

proto::ActorRow RowOf(const proto::ActorInfo& info);

}  // namespace sheaf
