// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How a group on several nodes gets what it works with beside its links: connections for arrays, and
// a rendezvous for the ranks of one node. Both meet over the links, whose ends are proven.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <list>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/text/same_secret.h"
#include "collective/net/net_group.h"
#include "collective/net/node_socket.h"

namespace sheaf {
namespace {

constexpr size_t kProofBytes = 16;
constexpr Nanos kConnectTime = 10 * kSecond;

std::string NewProof() {
  const uint64_t numbers[2] = {EntropySeed(), EntropySeed()};
  static_assert(sizeof numbers == kProofBytes);
  return std::string(reinterpret_cast<const char*>(numbers), sizeof numbers);
}

// What a rank that dials says first, and what it hears then.
struct Hello {
  char proof[kProofBytes];  // That the dialled rank gave the dialling one.
  int32_t rank;             // The dialling one.
  int32_t lane;
};
struct Answer {
  char proof[kProofBytes];  // That the dialling rank gave the dialled one.
};

// Where a rank awaits another: a proof and a port.
constexpr size_t kPlaceBytes = kProofBytes + sizeof(int32_t);

// Makes the connections of one rank: of each two the higher dials the lower. Nobody is let in who
// does not know what only that rank was told over its link.
class BulkMeeting {
 public:
  // `proofs`: what this rank told each, by rank; `places`: what each told this one, empty: it is
  // not to be connected.
  BulkMeeting(const NetGroup& group, const NodeListener& listener,
              const std::vector<std::string>& proofs, const std::vector<std::string>& places,
              BulkSockets& sockets)
      : group_(group), listener_(listener), proofs_(proofs), places_(places), sockets_(sockets) {}

  // Ends when all are connected, or `given_up` says so. kUnavailable: a rank cannot be reached.
  absl::Status Run(absl::FunctionRef<bool()> given_up) {
    for (int rank = 0; rank < group_.world_size(); ++rank) {
      if (PlaceOf(rank).empty()) continue;
      missing_ += BulkSockets::kLanes;
      if (rank > group_.rank()) continue;
      for (size_t lane = 0; lane < BulkSockets::kLanes; ++lane) {
        SHEAF_RETURN_IF_ERROR(Dial(rank, static_cast<BulkSockets::Lane>(lane)));
      }
    }
    while (missing_ > 0) {
      if (given_up()) return absl::DeadlineExceededError("a rank did not connect");
      Turn();
      if (!lost_.ok()) return lost_;
    }
    return absl::OkStatus();
  }

 private:
  // A connection whose other end has not proven itself.
  struct Stranger {
    UniqueFd fd;
    int rank = -1;  // Whom this rank dials; -1: it was dialled.
    BulkSockets::Lane lane = BulkSockets::Lane::kCollective;
    bool connecting = false;
    Nanos deadline = MonotonicNow() + kHandshake;
    std::string received;
  };
  static constexpr size_t kMaxStrangers = 256;
  static constexpr Nanos kHandshake = 5 * kSecond;

  const std::string& PlaceOf(int rank) const { return places_[static_cast<size_t>(rank)]; }
  // Whether `shown` is what this rank told `rank`.
  bool IsProofOf(int rank, const char (&shown)[kProofBytes]) const {
    return SameSecret({shown, kProofBytes}, proofs_[static_cast<size_t>(rank)]);
  }
  absl::string_view TheirProof(int rank) const {
    return absl::string_view(PlaceOf(rank)).substr(0, kProofBytes);
  }

  absl::Status Dial(int rank, BulkSockets::Lane lane) {
    int32_t port;
    std::memcpy(&port, PlaceOf(rank).data() + kProofBytes, sizeof port);
    Stranger stranger;
    SHEAF_ASSIGN_OR_RETURN(stranger.fd, DialNode(group_.member(rank).host, port));
    stranger.rank = rank;
    stranger.lane = lane;
    stranger.connecting = true;
    strangers_.push_back(std::move(stranger));
    return absl::OkStatus();
  }

  void Turn() {
    std::vector<pollfd> entries;
    if (strangers_.size() < kMaxStrangers) entries.push_back({listener_.fd.get(), POLLIN, 0});
    const size_t before = entries.size();
    for (const Stranger& stranger : strangers_) {
      entries.push_back(
          {stranger.fd.get(), static_cast<short>(stranger.connecting ? POLLOUT : POLLIN), 0});
    }
    if (poll(entries.data(), entries.size(), 20) < 0) return;
    size_t at = before;
    for (auto stranger = strangers_.begin(); stranger != strangers_.end(); ++at) {
      const bool late = stranger->rank < 0 && MonotonicNow() >= stranger->deadline;
      const bool over = late || (entries[at].revents != 0 && !Greet(*stranger));
      stranger = over ? strangers_.erase(stranger) : std::next(stranger);
    }
    if (before == 0 || entries[0].revents == 0) return;
    for (UniqueFd fd = AcceptFromNode(listener_); fd.valid(); fd = AcceptFromNode(listener_)) {
      strangers_.emplace_back().fd = std::move(fd);
      if (strangers_.size() >= kMaxStrangers) return;
    }
  }

  // These are the first bytes on the connection: there is room for them.
  template <class T>
  static bool Say(const UniqueFd& fd, const T& words) {
    return send(fd.get(), &words, sizeof words, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof words;
  }
  // Whether `words` have come; *open false: they never will.
  template <class T>
  static bool Hear(Stranger& stranger, T* words, bool* open) {
    char bytes[sizeof *words];
    const size_t wanted = sizeof *words - stranger.received.size();
    const ssize_t size = recv(stranger.fd.get(), bytes, wanted, MSG_DONTWAIT);
    *open = size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR || errno == EWOULDBLOCK));
    if (size > 0) stranger.received.append(bytes, static_cast<size_t>(size));
    if (stranger.received.size() < sizeof *words) return false;
    std::memcpy(words, stranger.received.data(), sizeof *words);
    return true;
  }

  // Goes on with a handshake. False: it is over, for good or ill.
  bool Greet(Stranger& stranger) {
    bool open = true;
    if (stranger.rank < 0) {
      Hello hello;
      if (!Hear(stranger, &hello, &open)) return open;
      Welcome(hello, stranger);
      return false;
    }
    if (stranger.connecting) {
      stranger.connecting = false;
      Hello hello = {};
      std::memcpy(hello.proof, TheirProof(stranger.rank).data(), kProofBytes);
      hello.rank = group_.rank();
      hello.lane = static_cast<int32_t>(stranger.lane);
      if (ConnectedToNode(stranger.fd) && Say(stranger.fd, hello)) return true;
      return Lose(stranger.rank);
    }
    Answer answer;
    if (!Hear(stranger, &answer, &open)) return open || Lose(stranger.rank);
    if (!IsProofOf(stranger.rank, answer.proof)) {
      return Lose(stranger.rank);
    }
    Join(stranger.rank, stranger.lane, std::move(stranger.fd));
    return false;
  }

  void Welcome(const Hello& hello, Stranger& stranger) {
    if (hello.rank <= group_.rank() || hello.rank >= group_.world_size() || hello.lane < 0 ||
        hello.lane >= static_cast<int32_t>(BulkSockets::kLanes) || PlaceOf(hello.rank).empty()) {
      return;
    }
    const auto lane = static_cast<BulkSockets::Lane>(hello.lane);
    Answer answer;
    std::memcpy(answer.proof, TheirProof(hello.rank).data(), kProofBytes);
    if (!IsProofOf(hello.rank, hello.proof) || sockets_.Has(hello.rank, lane) ||
        !Say(stranger.fd, answer)) {
      return;
    }
    Join(hello.rank, lane, std::move(stranger.fd));
  }

  void Join(int rank, BulkSockets::Lane lane, UniqueFd fd) {
    SendAtOnce(fd);
    sockets_.Add(rank, lane, std::move(fd));
    --missing_;
  }

  bool Lose(int rank) {
    lost_ = absl::UnavailableError(
        absl::StrCat("rank ", rank, " at ", group_.member(rank).host, " did not prove itself"));
    return false;
  }

  const NetGroup& group_;
  const NodeListener& listener_;
  const std::vector<std::string>& proofs_;
  const std::vector<std::string>& places_;
  BulkSockets& sockets_;
  std::list<Stranger> strangers_;
  size_t missing_ = 0;
  absl::Status lost_;
};

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
  bulk_ = std::make_unique<BulkSockets>(world_size(), spins_);
  if (ranks.empty()) return absl::OkStatus();
  SHEAF_ASSIGN_OR_RETURN(const NodeListener listener, ListenOnNode(options_.host));
  const auto port = static_cast<int32_t>(listener.port);
  const absl::string_view port_bytes(reinterpret_cast<const char*>(&port), sizeof port);
  std::vector<std::string> proofs(static_cast<size_t>(world_size()));
  for (int other : ranks) {
    proofs[static_cast<size_t>(other)] = NewProof();
    links_->Send(other, LinkFrameKind::kBulk,
                 absl::StrCat(proofs[static_cast<size_t>(other)], port_bytes));
  }
  std::vector<std::string> places(static_cast<size_t>(world_size()));
  for (int other : ranks) {
    const MutexLock lock(mutex_);
    const auto told = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return At(other).bulk_place.size() == kPlaceBytes;
    };
    while (!told()) {
      if (broken_ || At(other).gone) {
        return absl::UnavailableError(
            absl::StrCat("the group '", options_.name,
                         "' cannot connect its nodes: ", NameOfRank(other), ") has ended"));
      }
      if (MonotonicNow() >= deadline) {
        return WithRank(absl::DeadlineExceededError(
                            absl::StrCat("the group '", options_.name, "': ", NameOfRank(other),
                                         ") did not go on while its nodes were connected")),
                        other);
      }
      AwaitNews(kLookPeriod, told);
    }
    places[static_cast<size_t>(other)] = At(other).bulk_place;
  }
  // A peer that has begun again never connects: then this rank does so soon, too.
  const Nanos until = std::min(deadline, MonotonicNow() + kConnectTime);
  const absl::Status met = BulkMeeting(*this, listener, proofs, places, *bulk_).Run([&] {
    const MutexLock lock(mutex_);
    bool gone = broken_ || MonotonicNow() >= until;
    for (int other : ranks) gone |= At(other).gone;
    return gone;
  });
  if (met.ok()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the group '", options_.name, "' cannot connect its nodes: ", met.message()));
}

}  // namespace sheaf
