// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who may have a name that several drivers want: at no time two actors, of which nobody has ended
// either, and nobody of whom it was acknowledged that he has ended. Told by the drivers.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/world.h"

namespace sheaf::sim {

class NameBook {
 public:
  explicit NameBook(World& world) : world_(world) {}

  // A registration is under way.
  void Asks(const std::string& name, ActorId actor) { names_[name].asked.insert(actor); }
  // It was acknowledged: `actor` has the name.
  void Has(const std::string& name, ActorId actor);
  // The end of `actor` was acknowledged.
  void IsOver(ActorId actor) { over_.insert(actor); }
  std::set<ActorId> over() const { return over_; }
  // A registration that began when those in `over` had ended hears that `holder` has the name.
  void IsTaken(const std::string& name, ActorId holder, const std::set<ActorId>& over);

 private:
  struct Name {
    std::set<ActorId> asked;
    std::vector<ActorId> holders;  // One after the other.
  };
  World& world_;
  std::map<std::string, Name> names_;
  std::set<ActorId> over_;
};

}  // namespace sheaf::sim
