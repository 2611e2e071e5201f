// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How the ranks of one node become a group. Each makes its segment and publishes where it is: a
// process, a descriptor of it, and a nonce that also stands in the segment. Each opens what the
// others published through /proc/PID/fd/N, which the kernel allows to processes of one user, and
// refuses what is not what was published: another start time (the number was used again), another
// inode, size or nonce (the descriptor was). Then it writes their nonces into its own page. A rank
// has formed the group when all others have written its nonce: each pair has then seen each other
// as they are now. A rank that finds an old publication just looks again until its deadline.
//
// When a rank has formed the group, all others have read what it published, so it takes that back:
// the meeting place is empty again, and what a rank leaves that dies meanwhile is replaced by its
// successor. The descriptor is closed as well.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "collective/group_epochs.h"
#include "collective/net_publication.h"
#include "collective/shm/shm_group.h"

namespace sheaf {
namespace {

struct Publication {
  ProcessIdentity process;
  int fd = -1;
  uint64_t inode = 0;
  uint64_t size_bytes = 0;
  uint64_t nonce = 0;
  uint64_t epoch = 0;
  int world_size = 0;
};

constexpr char kVersion[] = "sheaf-collective-1";

std::string Encode(const Publication& publication) {
  return absl::StrCat(kVersion, " ", publication.process.pid, " ", publication.process.start_time,
                      " ", publication.process.machine, " ", publication.fd, " ", publication.inode,
                      " ", publication.size_bytes, " ", publication.nonce, " ", publication.epoch,
                      " ", publication.world_size);
}

absl::StatusOr<Publication> Decode(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ' ');
  Publication out;
  if (parts.size() != 10 || parts[0] != kVersion || !absl::SimpleAtoi(parts[1], &out.process.pid) ||
      !absl::SimpleAtoi(parts[2], &out.process.start_time) ||
      !absl::SimpleAtoi(parts[4], &out.fd) || !absl::SimpleAtoi(parts[5], &out.inode) ||
      !absl::SimpleAtoi(parts[6], &out.size_bytes) || !absl::SimpleAtoi(parts[7], &out.nonce) ||
      !absl::SimpleAtoi(parts[8], &out.epoch) || !absl::SimpleAtoi(parts[9], &out.world_size) ||
      out.process.pid <= 0 || out.fd < 0) {
    return absl::InvalidArgumentError("it published what this version of Sheaf cannot read");
  }
  out.process.machine = std::string(parts[3]);
  return out;
}

}  // namespace

class ShmGroup::Formation {
 public:
  Formation(const CommunicatorOptions& options, Rendezvous& rendezvous)
      : options_(options),
        rendezvous_(rendezvous),
        deadline_(Deadline(MonotonicNow(), options.formation_timeout)),
        group_(new ShmGroup(options)),
        peers_(static_cast<size_t>(options.world_size)) {}

  absl::StatusOr<std::unique_ptr<ShmGroup>> Run() {
    SHEAF_RETURN_IF_ERROR(MakeOwn());
    absl::Status status = Meet();
    // Not only on success: a rank that gives up is not to be found.
    rendezvous_.Withdraw(options_.rank, published_, MonotonicNow() + kSecond).IgnoreError();
    if (!status.ok()) return status;
    RememberEpoch(options_.name, group_->epoch_);
    return std::move(group_);
  }

 private:
  struct Peer {
    std::string bytes;   // What was found last.
    std::string reason;  // Why it is not joined yet.
    uint64_t nonce = 0;
    uint64_t epoch = 0;
    bool mapped = false;
  };

  absl::Status MakeOwn() {
    const size_t arena_offset = ArenaOffset(options_.world_size);
    const size_t size = RoundUpToPage(arena_offset + options_.arena_bytes);
    SHEAF_ASSIGN_OR_RETURN(fd_, MakeSegment("sheaf-collective", size));
    SHEAF_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Map(fd_.get(), 0, size, Access::kReadWrite));
    mapping.AdviseHugePages();
    auto memory = std::make_shared<ShmGroup::OwnMemory>();
    memory->mapping = std::move(mapping);
    // Another number than the one that is published, which ends with the formation.
    memory->fd = UniqueFd(fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
    if (!memory->fd.valid()) return absl::ErrnoToStatus(errno, "no descriptor for the group");
    memory->in_children =
        ChildMapping::Copy(memory->mapping.data(), memory->mapping.size(), memory->fd.get());
    group_->own_memory_ = memory;
    // What every operation needs; ShmSender takes what its pair needs.
    SHEAF_RETURN_IF_ERROR(
        group_->Reserve(0, kStageOffset + SlotsFor(options_.world_size) * kSlotBytes));
    group_->arena_offset_ = arena_offset;
    group_->members_.resize(static_cast<size_t>(options_.world_size));
    group_->bases_.resize(static_cast<size_t>(options_.world_size), nullptr);
    Member& member = group_->members_[options_.rank];
    member.mapping = std::shared_ptr<Mapping>(memory, &memory->mapping);
    group_->bases_[options_.rank] = member.mapping->data();
    struct stat file = {};
    fstat(fd_.get(), &file);
    own_.process = OwnIdentity();
    SHEAF_ASSIGN_OR_RETURN(member.process, ProcessPresence::Watch(own_.process));
    own_.process.machine = NodeOf(options_);
    own_.fd = fd_.get();
    own_.inode = file.st_ino;
    own_.size_bytes = size;
    own_.nonce = EntropySeed() | 1;
    own_.world_size = options_.world_size;
    own_.epoch = NextEpoch(options_.name, options_.epoch);
    RankPage& page = group_->own();
    page.nonce = own_.nonce;
    page.arena_offset = arena_offset;
    page.size_bytes = size;
    page.magic = kRankPageMagic;
    published_ = Encode(own_);
    return absl::OkStatus();
  }

  absl::Status Meet() {
    group_->epoch_ = own_.epoch;
    if (options_.world_size == 1) return absl::OkStatus();
    SHEAF_RETURN_IF_ERROR(rendezvous_.Publish(options_.rank, published_, AnswerBy()));
    Nanos pause = kMillisecond;
    while (true) {
      std::vector<int> ranks;
      for (int rank = 0; rank < options_.world_size; ++rank) {
        if (!Joined(rank)) ranks.push_back(rank);
      }
      SHEAF_ASSIGN_OR_RETURN(const Rendezvous::Found found, rendezvous_.Look(ranks, AnswerBy()));
      for (size_t i = 0; i < ranks.size(); ++i) {
        SHEAF_RETURN_IF_ERROR(ranks[i] == options_.rank ? CheckOwn(found[i])
                                                        : TryJoin(ranks[i], found[i]));
      }
      if (AllJoined()) break;
      if (MonotonicNow() >= deadline_) return Missing();
      if (options_.interrupted && options_.interrupted()) {
        return absl::CancelledError(
            absl::StrCat("forming the group '", options_.name, "' was interrupted"));
      }
      Bell& bell = group_->own().bell;
      SetBell(bell, BellState::kAsleep);
      if (!AllJoined()) SleepOnBell(bell, pause);
      SetBell(bell, BellState::kAwake);
      pause = std::min<Nanos>(pause * 2, 20 * kMillisecond);
    }
    for (const Peer& peer : peers_) group_->epoch_ = std::max(group_->epoch_, peer.epoch);
    return absl::OkStatus();
  }

  // The last question is asked just before the deadline, and may still be answered.
  Nanos AnswerBy() const { return Deadline(deadline_, kSecond); }

  // Each has mapped the other as it is now.
  bool Joined(int rank) const {
    return peers_[rank].mapped && group_->page(rank)->confirmed[options_.rank].load(
                                      std::memory_order_acquire) == own_.nonce;
  }
  bool AllJoined() const {
    for (int rank = 0; rank < options_.world_size; ++rank) {
      if (rank != options_.rank && !Joined(rank)) return false;
    }
    return true;
  }

  // What this rank published is still there; else somebody else claims its place.
  absl::Status CheckOwn(const std::optional<std::string>& found) {
    if (found == published_) return absl::OkStatus();
    if (found.has_value()) {
      const absl::StatusOr<Publication> other = Decode(*found);
      if (other.ok() && ProcessPresence::Watch(other->process).ok() && other->nonce != own_.nonce) {
        return WithRank(absl::AlreadyExistsError(
                            absl::StrCat("process ", other->process.pid, " also wants to be rank ",
                                         options_.rank, " of the group '", options_.name, "'")),
                        options_.rank);
      }
    }
    return rendezvous_.Publish(options_.rank, published_, AnswerBy());
  }

  absl::Status TryJoin(int rank, const std::optional<std::string>& found) {
    Peer& peer = peers_[rank];
    // Withdrawn: it has formed the group, or has given up and may come again.
    if (!found.has_value() || *found == peer.bytes) return absl::OkStatus();
    peer.bytes = *found;
    peer.mapped = false;
    const absl::StatusOr<Publication> publication = Decode(*found);
    if (IsNetPublication(*found) ||
        (publication.ok() && publication->process.machine != own_.process.machine)) {
      return WithRank(absl::UnimplementedError(
                          absl::StrCat("rank ", rank, " of the group '", options_.name,
                                       "' is on another node: ranks that share memory are on one")),
                      rank);
    }
    if (!publication.ok()) {
      peer.reason = std::string(publication.status().message());
      return absl::OkStatus();
    }
    if (publication->world_size != options_.world_size) {
      peer.reason = absl::StrCat("it wants a group of ", publication->world_size);
      return absl::OkStatus();
    }
    absl::Status status = Map(rank, *publication);
    if (!status.ok()) {
      peer.reason = std::string(status.message());
      if (absl::IsPermissionDenied(status)) return WithRank(status, rank);
      return absl::OkStatus();
    }
    peer.mapped = true;
    peer.nonce = publication->nonce;
    peer.epoch = publication->epoch;
    peer.reason = "it has not seen this rank yet";
    group_->own().confirmed[rank].store(peer.nonce, std::memory_order_release);
    RingBell(group_->page(rank)->bell, Lane::kControl);
    return absl::OkStatus();
  }

  absl::Status Map(int rank, const Publication& publication) {
    const auto stale = [&](const char* what) {
      return absl::NotFoundError(absl::StrCat("what its process ", publication.process.pid,
                                              " published is old: the ", what, " is another's"));
    };
    Member member;
    SHEAF_ASSIGN_OR_RETURN(member.process, ProcessPresence::Watch(publication.process));
    absl::StatusOr<UniqueFd> fd = OpenDescriptorOf(publication.process, publication.fd);
    if (!fd.ok()) {
      // Gone meanwhile, or it has closed the descriptor, whose number may name a socket by now:
      // then what it published is old.
      struct stat named = {};
      const std::string path =
          absl::StrCat("/proc/", publication.process.pid, "/fd/", publication.fd);
      const bool same =
          stat(path.c_str(), &named) == 0 ? named.st_ino == publication.inode : errno != ENOENT;
      if (!member.process.Alive() || !same) return stale("descriptor");
      return fd.status();
    }
    struct stat file = {};
    if (fstat(fd->get(), &file) != 0 || file.st_ino != publication.inode ||
        static_cast<uint64_t>(file.st_size) != publication.size_bytes) {
      return stale("descriptor");
    }
    // The same on all ranks, or offsets would mean different places.
    if (publication.size_bytes != own_.size_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("its segment has ", publication.size_bytes,
                                                     " bytes, this rank's ", own_.size_bytes,
                                                     ": want the same arena size on all ranks"));
    }
    SHEAF_RETURN_IF_ERROR(CheckSegment(fd->get(), own_.size_bytes));
    SHEAF_ASSIGN_OR_RETURN(Mapping mapping,
                           Mapping::Map(fd->get(), 0, own_.size_bytes, Access::kReadWrite));
    const auto* page = reinterpret_cast<const RankPage*>(mapping.data());
    if (page->magic != kRankPageMagic || page->nonce != publication.nonce ||
        page->arena_offset != group_->arena_offset_) {
      return stale("segment");
    }
    member.mapping = std::make_shared<Mapping>(std::move(mapping));
    member.in_children = ChildMapping::Nothing(member.mapping->data(), member.mapping->size());
    group_->bases_[rank] = member.mapping->data();
    group_->members_[rank] = std::move(member);
    return absl::OkStatus();
  }

  absl::Status Missing() const {
    std::string text;
    int first = -1;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      if (rank == options_.rank || Joined(rank)) continue;
      if (first < 0) first = rank;
      absl::StrAppend(&text, text.empty() ? "" : "; ", "rank ", rank, ": ",
                      peers_[rank].reason.empty() ? "it has not come"
                      : peers_[rank].mapped && !group_->members_[rank].process.Alive()
                          ? "its process died"
                          : peers_[rank].reason);
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
  std::unique_ptr<ShmGroup> group_;
  std::vector<Peer> peers_;
  UniqueFd fd_;
  Publication own_;
  std::string published_;
};

absl::StatusOr<std::unique_ptr<ShmGroup>> ShmGroup::Form(const CommunicatorOptions& options,
                                                         Rendezvous& rendezvous) {
  if (options.world_size < 1 || options.world_size > kMaxLocalRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group of ", options.world_size, " ranks: want 1 to ", kMaxLocalRanks));
  }
  if (options.rank < 0 || options.rank >= options.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no rank ", options.rank, " in a group of ", options.world_size));
  }
  return Formation(options, rendezvous).Run();
}

}  // namespace sheaf
