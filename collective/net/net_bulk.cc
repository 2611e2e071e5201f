// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How a group on several nodes gets what it works with beside its links: the bulk transport, and a
// rendezvous for the ranks of one node. Both meet over the links, whose ends are proven.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "collective/net/net_group.h"

namespace sheaf {
namespace {

constexpr size_t kProofBytes = 16;

std::string NewProof() {
  const uint64_t numbers[2] = {EntropySeed(), EntropySeed()};
  static_assert(sizeof numbers == kProofBytes);
  return std::string(reinterpret_cast<const char*>(numbers), sizeof numbers);
}

// Loaded once and kept.
absl::StatusOr<MakeBulkTransport> LoadBulkLibrary() {
  static const absl::StatusOr<MakeBulkTransport> loaded =
      []() -> absl::StatusOr<MakeBulkTransport> {
    // Beside what this code is in, or where its RPATH says.
    Dl_info self = {};
    std::string beside;
    if (dladdr(reinterpret_cast<const void*>(&NewProof), &self) != 0 && self.dli_fname != nullptr) {
      const std::string path = self.dli_fname;
      if (const size_t slash = path.rfind('/'); slash != std::string::npos) {
        beside = absl::StrCat(path.substr(0, slash + 1), kBulkLibrary);
      }
    }
    std::string errors;
    for (const std::string& path : {beside, std::string(kBulkLibrary)}) {
      if (path.empty()) continue;
      if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        void* const symbol = dlsym(library, kBulkSymbol);
        if (symbol != nullptr) return reinterpret_cast<MakeBulkTransport>(symbol);
      }
      const char* const error = dlerror();
      absl::StrAppend(&errors, errors.empty() ? "" : "; ", error == nullptr ? "" : error);
    }
    return absl::UnimplementedError(absl::StrCat(
        "a group on several nodes needs ", kBulkLibrary,
        ", which comes with Sheaf, and Gloo (Debian's libgloo0); it cannot be loaded: ", errors));
  }();
  return loaded;
}

// A rendezvous over links.
class LinkRendezvous final : public Rendezvous {
 public:
  LinkRendezvous(NetGroup& group, std::vector<int> ranks)
      : group_(group), ranks_(std::move(ranks)) {}
  absl::Status Publish(int place, absl::string_view bytes, Nanos) override {
    own_ = std::string(bytes);
    group_.SayPlace(ranks_, own_);
    return place < static_cast<int>(ranks_.size()) ? absl::OkStatus()
                                                   : absl::InvalidArgumentError("no such place");
  }
  absl::StatusOr<Found> Look(std::span<const int> places, Nanos) override {
    Found all;
    for (const int place : places) {
      const int rank = ranks_[static_cast<size_t>(place)];
      std::string found = own_;
      if (rank != group_.rank()) {
        SHEAF_ASSIGN_OR_RETURN(found, group_.PlaceOf(rank));
      }
      all.push_back(found.empty() ? std::nullopt : std::optional<std::string>(std::move(found)));
    }
    return all;
  }
  absl::Status Withdraw(int, absl::string_view, Nanos) override { return absl::OkStatus(); }

 private:
  NetGroup& group_;
  const std::vector<int> ranks_;
  std::string own_;
};

}  // namespace

std::unique_ptr<Rendezvous> NetGroup::LocalRendezvous(std::vector<int> ranks) {
  return std::make_unique<LinkRendezvous>(*this, std::move(ranks));
}

void NetGroup::SayPlace(const std::vector<int>& ranks, const std::string& bytes) {
  for (int other : ranks) {
    if (other != rank()) links_->Send(other, LinkFrameKind::kPlace, bytes);
  }
}

absl::StatusOr<std::string> NetGroup::PlaceOf(int rank) const {
  const MutexLock lock(mutex_);
  if (At(rank).gone || broken_) {
    return absl::UnavailableError(absl::StrCat(NameOfRank(rank), ") left while the group formed"));
  }
  return At(rank).place;
}

absl::Status NetGroup::ConnectBulk(const std::function<bool(int rank)>& wanted, Nanos deadline) {
  std::vector<int> ranks;
  for (int other = 0; other < world_size(); ++other) {
    if (other != rank() && wanted(other)) ranks.push_back(other);
  }
  if (ranks.empty()) return absl::OkStatus();
  SHEAF_ASSIGN_OR_RETURN(const MakeBulkTransport make, LoadBulkLibrary());
  char error[512] = {};
  // A peer that has begun again never connects: then this rank does so soon, too.
  const Nanos left = std::clamp<Nanos>(deadline - MonotonicNow(), kSecond, 10 * kSecond);
  bulk_.reset(
      make(rank(), world_size(), options_.host.c_str(), left / kMillisecond, error, sizeof error));
  const auto failed = [&](const std::string& words) {
    return absl::UnavailableError(
        absl::StrCat("the group '", options_.name, "' cannot connect its nodes: ", words));
  };
  if (bulk_ == nullptr) return failed(error);
  std::vector<std::string> proofs(static_cast<size_t>(world_size()));
  for (int other : ranks) {
    size_t size = 0;
    const void* const address = bulk_->AddressFor(other, &size);
    if (size == 0) return failed(bulk_->Error());
    proofs[static_cast<size_t>(other)] = NewProof();
    links_->Send(other, LinkFrameKind::kBulk,
                 absl::StrCat(proofs[static_cast<size_t>(other)],
                              absl::string_view(static_cast<const char*>(address), size)));
  }
  std::vector<std::string> theirs(static_cast<size_t>(world_size()));
  for (int other : ranks) {
    const MutexLock lock(mutex_);
    while (At(other).bulk_place.size() <= kProofBytes) {
      if (broken_ || At(other).gone) return failed(absl::StrCat(NameOfRank(other), ") has ended"));
      if (MonotonicNow() >= deadline) {
        return WithRank(absl::DeadlineExceededError(
                            absl::StrCat("the group '", options_.name, "': ", NameOfRank(other),
                                         ") did not go on while its nodes were connected")),
                        other);
      }
      changed_.WaitFor(mutex_, 50 * kMillisecond);
    }
    theirs[static_cast<size_t>(other)] = At(other).bulk_place;
  }
  for (int other : ranks) {
    const std::string& place = theirs[static_cast<size_t>(other)];
    if (!bulk_->Connect(other, place.data() + kProofBytes, place.size() - kProofBytes)) {
      return failed(absl::StrCat(NameOfRank(other), "): ", bulk_->Error()));
    }
  }
  // Whoever is at the other end of each pair knows what only the rank was told.
  for (int other : ranks) {
    std::string got(kProofBytes, '\0');
    const auto prove = [&](BulkTransport::Transfer* transfer) {
      const std::unique_ptr<BulkTransport::Transfer> owned(transfer);
      return owned != nullptr &&
             owned->Wait(std::max<Nanos>(deadline - MonotonicNow(), 0) / kMillisecond);
    };
    BulkTransport::Transfer* const receiving =
        bulk_->Receive(other, BulkTransport::Lane::kProof, got.data(), got.size());
    const bool sent = prove(bulk_->Send(other, BulkTransport::Lane::kProof,
                                        theirs[static_cast<size_t>(other)].data(), kProofBytes));
    if (!prove(receiving) || !sent || got != proofs[static_cast<size_t>(other)]) {
      return failed(absl::StrCat(NameOfRank(other), ") did not prove itself"));
    }
  }
  return absl::OkStatus();
}

}  // namespace sheaf
