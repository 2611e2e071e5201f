// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How the ranks of a group on several nodes become one. Each listens on its node's address and
// publishes where, with two secrets. The higher rank of a pair dials the lower: it says whom it
// means (the other's challenge), who it is (its own challenge), and gets its own answer back, which
// proves that the other has read what it published. A rank that has links with all says so to all,
// with a digest of the challenges; the group is formed for whoever heard the same digest from all.
// What a dead process left is found out by dialling it, and its successor publishes anew; so a rank
// that finds something old just looks again until its deadline, as in shm_formation.cc.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/text/same_secret.h"
#include "collective/group_epochs.h"
#include "collective/net/node_socket.h"
#include "collective/net/peer_links.h"
#include "collective/net_publication.h"

namespace sheaf {
namespace {

constexpr int kMaxNetRanks = 1024;
constexpr size_t kMaxStrangers = 64;  // Connections that have not said who they are.
constexpr Nanos kHandshake = 5 * kSecond;

struct Hello {
  uint64_t challenge[2];  // Of the rank that is dialled.
  uint64_t own[2];        // Of the one that dials.
  int32_t rank;
  int32_t version;
};
struct Answer {
  uint64_t answer[2];  // Of the rank that dialled.
};
constexpr int32_t kHelloVersion = 1;

void SetOptions(const UniqueFd& fd) {
  SendAtOnce(fd);
  NoticeSilence(fd);  // A node that is gone without a word.
}

template <class T>
std::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

bool SameNumbers(const uint64_t (&shown)[2], const uint64_t (&known)[2]) {
  return SameSecret(BytesOf(shown), BytesOf(known));
}

class LinkFormation {
 public:
  LinkFormation(const CommunicatorOptions& options, Rendezvous& rendezvous)
      : options_(options),
        rendezvous_(rendezvous),
        deadline_(Deadline(MonotonicNow(), options.formation_timeout)),
        peers_(static_cast<size_t>(options.world_size)) {}

  absl::StatusOr<PeerLinks::Formed> Run() {
    SHEAF_RETURN_IF_ERROR(Listen());
    absl::Status status = rendezvous_.Publish(options_.rank, published_, AnswerBy());
    if (status.ok()) status = Meet();
    rendezvous_.Withdraw(options_.rank, published_, MonotonicNow() + kSecond).IgnoreError();
    SHEAF_RETURN_IF_ERROR(status);
    PeerLinks::Formed formed;
    formed.epoch = own_.epoch;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      Peer& peer = peers_[static_cast<size_t>(rank)];
      const NetPublication& known = rank == options_.rank ? own_ : peer.publication;
      formed.epoch = std::max(formed.epoch, known.epoch);
      formed.members.push_back({known.pid, known.node, known.host});
      formed.links.push_back(std::move(peer.link));
    }
    return formed;
  }

 private:
  struct Peer {
    std::string bytes;  // What was found last.
    bool known = false;
    NetPublication publication;
    std::string reason;  // Why there is no link yet.
    Nanos next_dial = 0;
    bool dialled = false;  // And not yet answered.
    Link link;
    uint64_t digest = 0;  // Of what it is ready with; 0: it is not.
  };
  struct Stranger {
    Link link;
    int rank = -1;  // Whom this rank dialled; -1: it was dialled.
    bool connecting = false;
    Nanos deadline = 0;
  };

  Nanos AnswerBy() const { return Deadline(deadline_, kSecond); }

  absl::Status Listen() {
    SHEAF_ASSIGN_OR_RETURN(listener_, ListenOnNode(options_.host));
    own_.pid = getpid();
    own_.node = NodeOf(options_);
    own_.host = options_.host;
    own_.port = listener_.port;
    for (uint64_t* number : {own_.challenge, own_.answer}) {
      number[0] = EntropySeed();
      number[1] = EntropySeed();
    }
    own_.epoch = NextEpoch(options_.name, options_.epoch);
    own_.world_size = options_.world_size;
    published_ = EncodeNetPublication(own_);
    return absl::OkStatus();
  }

  absl::Status Meet() {
    Nanos pause = kMillisecond;
    // All ranks ask for all others: in a large group each asks less often.
    const Nanos longest_pause = std::max(20 * kMillisecond, options_.world_size * kMillisecond / 4);
    Nanos next_look = 0;
    while (!Formed()) {
      if (MonotonicNow() >= deadline_) return Missing();
      if (options_.interrupted && options_.interrupted()) {
        return absl::CancelledError(
            absl::StrCat("forming the group '", options_.name, "' was interrupted"));
      }
      if (MonotonicNow() >= next_look) {
        std::vector<int> ranks;
        for (int rank = 0; rank < options_.world_size; ++rank) {
          if (!peers_[static_cast<size_t>(rank)].link.fd.valid()) ranks.push_back(rank);
        }
        SHEAF_ASSIGN_OR_RETURN(const Rendezvous::Found found, rendezvous_.Look(ranks, AnswerBy()));
        for (size_t i = 0; i < ranks.size(); ++i) {
          if (ranks[i] == options_.rank) {
            SHEAF_RETURN_IF_ERROR(CheckOwn(found[i]));
          } else {
            LookAt(ranks[i], found[i]);
          }
        }
        next_look = MonotonicNow() + pause;
        pause = std::min(pause * 2, longest_pause);
      }
      Wait(pause);
    }
    return absl::OkStatus();
  }

  bool AllLinked() const {
    for (int rank = 0; rank < options_.world_size; ++rank) {
      if (rank != options_.rank && !peers_[static_cast<size_t>(rank)].link.fd.valid()) return false;
    }
    return true;
  }
  bool Formed() const {
    if (!AllLinked()) return false;
    const uint64_t digest = Digest();
    for (int rank = 0; rank < options_.world_size; ++rank) {
      if (rank != options_.rank && peers_[static_cast<size_t>(rank)].digest != digest) return false;
    }
    return true;
  }
  // Of who is in the group; never 0.
  uint64_t Digest() const {
    uint64_t digest = 1;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      const NetPublication& known =
          rank == options_.rank ? own_ : peers_[static_cast<size_t>(rank)].publication;
      digest = SeededRandom(digest ^ known.challenge[0]).Next() ^ known.challenge[1];
    }
    return digest | 1;
  }

  // What this rank published is still there; else it was overwritten, by what is old or by another
  // process of this rank.
  absl::Status CheckOwn(const std::optional<std::string>& found) {
    if (found == published_) return absl::OkStatus();
    if (found.has_value() && ++overwritten_ > 3) {
      return WithRank(absl::AlreadyExistsError(
                          absl::StrCat("another process also wants to be rank ", options_.rank,
                                       " of the group '", options_.name, "'")),
                      options_.rank);
    }
    return rendezvous_.Publish(options_.rank, published_, AnswerBy());
  }

  void LookAt(int rank, const std::optional<std::string>& found) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    if (!found.has_value()) return;
    if (*found != peer.bytes) {
      peer.bytes = *found;
      peer.known = false;
      peer.next_dial = 0;
      const absl::StatusOr<NetPublication> publication = DecodeNetPublication(*found);
      if (!publication.ok()) {
        peer.reason = IsShmPublication(*found)
                          ? "it does not know yet that the group is on several nodes"
                          : std::string(publication.status().message());
      } else if (publication->world_size != options_.world_size) {
        peer.reason = absl::StrCat("it wants a group of ", publication->world_size);
      } else {
        peer.publication = *publication;
        peer.known = true;
        peer.reason = absl::StrCat("its process ", publication->pid, " does not answer at ",
                                   publication->host, ":", publication->port);
      }
    }
    if (peer.known && rank < options_.rank && !peer.dialled && MonotonicNow() >= peer.next_dial) {
      Dial(rank);
    }
  }

  void Dial(int rank) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    peer.next_dial = MonotonicNow() + 50 * kMillisecond;
    absl::StatusOr<UniqueFd> fd = DialNode(peer.publication.host, peer.publication.port);
    if (!fd.ok()) {
      if (absl::IsInvalidArgument(fd.status())) peer.reason = std::string(fd.status().message());
      return;
    }
    Stranger stranger;
    stranger.rank = rank;
    stranger.deadline = MonotonicNow() + kHandshake;
    stranger.link.fd = *std::move(fd);
    stranger.connecting = true;
    peer.dialled = true;
    strangers_.push_back(std::move(stranger));
  }

  // Waits for anything to happen on the sockets, and handles it.
  void Wait(Nanos pause) {
    std::vector<pollfd> entries{{listener_.fd.get(), POLLIN, 0}};
    std::vector<std::list<Stranger>::iterator> strangers;
    std::vector<size_t> linked;
    for (auto at = strangers_.begin(); at != strangers_.end(); ++at) {
      entries.push_back(
          {at->link.fd.get(), static_cast<short>(at->connecting ? POLLOUT : POLLIN), 0});
      strangers.push_back(at);
    }
    for (size_t rank = 0; rank < peers_.size(); ++rank) {
      if (!peers_[rank].link.fd.valid()) continue;
      entries.push_back({peers_[rank].link.fd.get(), POLLIN, 0});
      linked.push_back(rank);
    }
    if (poll(entries.data(), entries.size(),
             static_cast<int>(std::max<Nanos>(pause / kMillisecond, 1))) < 0) {
      return;
    }
    for (size_t i = 0; i < strangers.size(); ++i) {
      const bool late = MonotonicNow() >= strangers[i]->deadline;
      if (entries[1 + i].revents != 0 || late) {
        if (late || !Greet(*strangers[i])) {
          if (strangers[i]->rank >= 0)
            peers_[static_cast<size_t>(strangers[i]->rank)].dialled = false;
          strangers_.erase(strangers[i]);
        }
      }
    }
    for (size_t i = 0; i < linked.size(); ++i) {
      if (entries[1 + strangers.size() + i].revents != 0) Listen(linked[i]);
    }
    if (entries[0].revents != 0) Accept();
  }

  void Accept() {
    while (strangers_.size() < kMaxStrangers) {
      UniqueFd fd = AcceptFromNode(listener_);
      if (!fd.valid()) return;
      SetOptions(fd);
      Stranger stranger;
      stranger.link.fd = std::move(fd);
      stranger.deadline = MonotonicNow() + kHandshake;
      strangers_.push_back(std::move(stranger));
    }
  }

  // False: `link` has ended.
  static bool Read(Link& link) {
    char bytes[4096];
    const ssize_t size = recv(link.fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (size > 0) link.received.append(bytes, static_cast<size_t>(size));
    return size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR || errno == EWOULDBLOCK));
  }
  // These are the first bytes on the connection: there is room for them.
  static bool Say(Link& link, LinkFrameKind kind, std::string_view bytes) {
    const std::string frame = EncodeFrame(kind, bytes);
    return send(link.fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(frame.size());
  }

  // Goes on with the handshake. False: it is over, for good or ill.
  bool Greet(Stranger& stranger) {
    if (stranger.connecting) {
      if (!ConnectedToNode(stranger.link.fd)) return false;
      stranger.connecting = false;
      SetOptions(stranger.link.fd);
      Hello hello = {};
      const NetPublication& theirs = peers_[static_cast<size_t>(stranger.rank)].publication;
      std::copy_n(theirs.challenge, 2, hello.challenge);
      std::copy_n(own_.challenge, 2, hello.own);
      hello.rank = options_.rank;
      hello.version = kHelloVersion;
      return Say(stranger.link, LinkFrameKind::kHello, BytesOf(hello));
    }
    const bool open = Read(stranger.link);
    size_t used = 0;
    const absl::StatusOr<std::vector<LinkFrame>> frames = FramesIn(stranger.link.received, &used);
    if (!frames.ok()) return false;
    if (frames->empty()) return open && stranger.link.received.size() < 1024;
    if (stranger.rank >= 0) {
      Answer answer;
      const LinkFrame& first = frames->front();
      if (first.kind != LinkFrameKind::kAnswer || first.bytes.size() != sizeof answer) return false;
      std::memcpy(&answer, first.bytes.data(), sizeof answer);
      if (!SameNumbers(answer.answer, own_.answer)) return false;
      Join(stranger.rank, stranger.link, 8 + sizeof answer);
      return false;
    }
    Hello hello;
    const LinkFrame& first = frames->front();
    if (first.kind != LinkFrameKind::kHello || first.bytes.size() != sizeof hello) return false;
    std::memcpy(&hello, first.bytes.data(), sizeof hello);
    if (hello.version != kHelloVersion || !SameNumbers(hello.challenge, own_.challenge) ||
        hello.rank <= options_.rank || hello.rank >= options_.world_size) {
      return false;
    }
    // A successor may be faster than this rank's last look.
    Peer& peer = peers_[static_cast<size_t>(hello.rank)];
    const auto matches = [&] {
      return peer.known && SameNumbers(hello.own, peer.publication.challenge);
    };
    if (!matches()) {
      peer.link = Link();
      peer.digest = 0;
      const absl::StatusOr<Rendezvous::Found> found =
          rendezvous_.Look({&hello.rank, 1}, AnswerBy());
      if (!found.ok()) return false;
      LookAt(hello.rank, found->front());
      if (!matches()) return false;
    }
    Answer answer;
    std::copy_n(peer.publication.answer, 2, answer.answer);
    if (!Say(stranger.link, LinkFrameKind::kAnswer, BytesOf(answer))) return false;
    Join(hello.rank, stranger.link, 8 + sizeof hello);
    return false;
  }

  // `link` is that of `rank`; its first `used` bytes were looked at.
  void Join(int rank, Link& link, size_t used) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    peer.dialled = false;
    peer.link = std::move(link);
    peer.link.received.erase(0, used);
    peer.digest = 0;
    peer.reason = "it has no links with all others yet";
    if (!peer.link.received.empty()) TakeReady(peer);
    if (!AllLinked()) return;
    const uint64_t digest = Digest();
    for (Peer& other : peers_) {
      if (other.link.fd.valid()) Say(other.link, LinkFrameKind::kReady, BytesOf(digest));
    }
  }

  void TakeReady(Peer& peer) {
    size_t used = 0;
    const absl::StatusOr<std::vector<LinkFrame>> frames = FramesIn(peer.link.received, &used);
    if (!frames.ok()) {
      peer.link = Link();
      return;
    }
    size_t taken = 0;
    // What follows is for the group.
    for (const LinkFrame& frame : *frames) {
      if (frame.kind != LinkFrameKind::kReady || frame.bytes.size() != sizeof peer.digest) break;
      std::memcpy(&peer.digest, frame.bytes.data(), sizeof peer.digest);
      taken += 8 + frame.bytes.size();
    }
    peer.link.received.erase(0, taken);
  }

  // To the link with `rank`.
  void Listen(size_t rank) {
    Peer& peer = peers_[rank];
    if (!peer.link.fd.valid()) return;  // Replaced just now.
    const bool open = Read(peer.link);
    TakeReady(peer);
    // It may have formed the group, and left it.
    if (!open && peer.digest != Digest()) {
      peer.link = Link();
      peer.digest = 0;
      peer.reason = "its connection ended";
    } else if (!open && !Formed()) {
      peer.link = Link();
      peer.digest = 0;
    }
  }

  absl::Status Missing() const {
    std::string text;
    int first = -1;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      const Peer& peer = peers_[static_cast<size_t>(rank)];
      if (rank == options_.rank || (peer.link.fd.valid() && peer.digest == Digest())) continue;
      if (first < 0) first = rank;
      absl::StrAppend(&text, text.empty() ? "" : "; ", "rank ", rank, ": ",
                      peer.reason.empty() ? "it has not come" : peer.reason);
    }
    return WithRank(absl::DeadlineExceededError(
                        absl::StrCat("the group '", options_.name, "' of ", options_.world_size,
                                     " ranks was not formed within ",
                                     options_.formation_timeout / kMillisecond, " ms: ", text)),
                    first);
  }

  const CommunicatorOptions& options_;
  Rendezvous& rendezvous_;
  const Nanos deadline_;
  std::vector<Peer> peers_;
  std::list<Stranger> strangers_;
  NodeListener listener_;
  NetPublication own_;
  std::string published_;
  int overwritten_ = 0;
};

}  // namespace

absl::StatusOr<PeerLinks::Formed> PeerLinks::Form(const CommunicatorOptions& options,
                                                  Rendezvous& rendezvous) {
  if (options.world_size < 1 || options.world_size > kMaxNetRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group of ", options.world_size, " ranks: want 1 to ", kMaxNetRanks));
  }
  if (options.rank < 0 || options.rank >= options.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no rank ", options.rank, " in a group of ", options.world_size));
  }
  return LinkFormation(options, rendezvous).Run();
}

}  // namespace sheaf
