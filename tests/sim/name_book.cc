// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/name_book.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sheaf::sim {

void NameBook::Has(const std::string& name, ActorId actor) {
  std::vector<ActorId>& holders = names_[name].holders;
  if (std::find(holders.begin(), holders.end(), actor) != holders.end()) return;
  // Whoever hears it late, by a repeated question, may hear of one that others have ended since.
  const bool is_late = world_.oracle.MayBeOver(actor);
  for (const ActorId other : holders) {
    if (is_late || world_.oracle.MayBeOver(other)) continue;
    world_.oracle.Fail(
        "O3", absl::StrCat("the name '", name, "' is that of actor ", actor.ToHex(), ", and ",
                           other.ToHex(), ", which nobody has ended, has it"));
  }
  holders.push_back(actor);
}

void NameBook::IsTaken(const std::string& name, ActorId holder, const std::set<ActorId>& over) {
  const Name& known = names_[name];
  if (!known.asked.contains(holder)) {
    world_.oracle.Fail("O3", absl::StrCat("the name '", name, "' is said to be that of actor ",
                                          holder.ToHex(), ", which never asked for it"));
  } else if (over.contains(holder)) {
    world_.oracle.Fail("O3", absl::StrCat("the name '", name, "' is still that of actor ",
                                          holder.ToHex(), ", which has ended"));
  }
}

}  // namespace sheaf::sim
