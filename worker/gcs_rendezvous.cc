// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/gcs_rendezvous.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr std::string_view kNameSpace = "sheaf.collective";

}  // namespace

GcsRendezvous::GcsRendezvous(Runtime& runtime, const std::string& group)
    : runtime_(runtime), prefix_(absl::StrCat(runtime.job(), "/", group, "/")) {}

std::string GcsRendezvous::KeyOf(int rank) const { return absl::StrCat(prefix_, rank); }

absl::Status GcsRendezvous::Publish(int rank, absl::string_view bytes, Nanos deadline) {
  return runtime_
      .KeyPut(kNameSpace, KeyOf(rank), {bytes.data(), bytes.size()}, /*overwrite=*/true,
              Runtime::KeyLife::kOfJob, deadline)
      .status();
}

absl::StatusOr<Rendezvous::Found> GcsRendezvous::Look(std::span<const int> ranks, Nanos deadline) {
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(KeyOf(rank));
  return runtime_.KeysGet(kNameSpace, keys, deadline);
}

absl::Status GcsRendezvous::Withdraw(int rank, absl::string_view bytes, Nanos deadline) {
  SHEAF_ASSIGN_OR_RETURN(const Found found, Look({&rank, 1}, deadline));
  if (found[0] != bytes) return absl::OkStatus();
  // A successor that publishes at this instant finds its own bytes missing and repeats them.
  return runtime_.KeyDelete(kNameSpace, KeyOf(rank), deadline).status();
}

absl::StatusOr<CollectivePlace> PlaceOfThisNode(Runtime& runtime, Nanos deadline) {
  CollectivePlace place;
  place.node = absl::StrCat(runtime.self().node);
  place.host = "127.0.0.1";
  proto::StateQuery query;
  query.set_what(proto::StateQuery::NODES);
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, runtime.Query(query, deadline));
  for (const proto::NodeRow& row : answer.nodes()) {
    if (row.node() != runtime.self().node || row.address().empty()) continue;
    std::string host = row.address().substr(0, row.address().rfind(':'));
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    if (!host.empty()) place.host = host;
  }
  return place;
}

}  // namespace sheaf
