// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/nccl/rank_board.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr uint64_t kMagic = 0x5348'4541'4642'0001;  // "SHEAFB", version 1.

}  // namespace

// What each rank gathers from all: plain bytes.
struct RankBoard::Card {
  int32_t pid;
  int32_t fd;
  uint64_t start_time;
  uint64_t nonce;
  char machine[104];  // Ends with a zero.
  char about[64];
};

absl::StatusOr<std::unique_ptr<RankBoard>> RankBoard::Form(Communicator& control,
                                                           absl::string_view about, Nanos timeout) {
  const Nanos deadline = Deadline(MonotonicNow(), timeout);
  const auto left = [&] { return std::max<Nanos>(deadline - MonotonicNow(), kMillisecond); };
  std::unique_ptr<RankBoard> board(new RankBoard(control.rank(), control.world_size()));
  SHEAF_ASSIGN_OR_RETURN(const UniqueFd fd, MakeSegment("sheaf-rank-board", kPageBytes));
  Member& own = board->members_[static_cast<size_t>(board->rank_)];
  SHEAF_ASSIGN_OR_RETURN(own.mapping, Mapping::Map(fd.get(), 0, kPageBytes, Access::kReadWrite));
  own.page = reinterpret_cast<Page*>(own.mapping.data());
  own.page->magic = kMagic;
  own.page->nonce = EntropySeed() | 1;

  const ProcessIdentity identity = OwnIdentity();
  Card card = {};
  card.pid = identity.pid;
  card.fd = fd.get();
  card.start_time = identity.start_time;
  card.nonce = own.page->nonce;
  std::memcpy(card.machine, identity.machine.data(),
              std::min(identity.machine.size(), sizeof card.machine - 1));
  std::memcpy(card.about, about.data(), std::min(about.size(), sizeof card.about));
  std::vector<Card> cards(board->members_.size());
  SHEAF_RETURN_IF_ERROR(
      control.AllGather(&card, cards.data(), sizeof card, DataType::kUint8, left()));
  for (int rank = 0; rank < control.world_size(); ++rank) {
    const Card& theirs = cards[static_cast<size_t>(rank)];
    board->members_[static_cast<size_t>(rank)].about.assign(theirs.about, sizeof theirs.about);
    if (rank != board->rank_) board->Map(rank, theirs, card.machine);
  }
  // Until all have mapped it the descriptor stays open.
  SHEAF_RETURN_IF_ERROR(control.Barrier(left()));
  return board;
}

// A rank that cannot be mapped is as one of another machine.
void RankBoard::Map(int rank, const Card& card, const std::string& machine) {
  const std::string theirs(card.machine, strnlen(card.machine, sizeof card.machine));
  if (theirs != machine) return;
  const ProcessIdentity identity{card.pid, card.start_time, theirs};
  absl::StatusOr<ProcessPresence> process = ProcessPresence::Watch(identity);
  if (!process.ok()) return;
  Member& member = members_[static_cast<size_t>(rank)];
  member.process = *std::move(process);
  const absl::StatusOr<UniqueFd> fd = OpenDescriptorOf(identity, card.fd);
  if (!fd.ok() || !CheckSegment(fd->get(), kPageBytes).ok()) return;
  absl::StatusOr<Mapping> mapping = Mapping::Map(fd->get(), 0, kPageBytes, Access::kReadOnly);
  if (!mapping.ok()) return;
  auto* page = reinterpret_cast<Page*>(mapping->data());
  if (page->magic != kMagic || page->nonce != card.nonce) return;
  member.mapping = *std::move(mapping);
  member.page = page;
}

RankBoard::~RankBoard() {
  Page* page = members_[static_cast<size_t>(rank_)].page;
  uint32_t active = kActive;
  if (page != nullptr) page->state.compare_exchange_strong(active, kLeft);
}

void RankBoard::Begin(uint64_t sequence) {
  members_[static_cast<size_t>(rank_)].page->begun.store(sequence, std::memory_order_release);
}
void RankBoard::Finish(uint64_t sequence) {
  members_[static_cast<size_t>(rank_)].page->finished.store(sequence, std::memory_order_release);
}

void RankBoard::Fail(const absl::Status& status) {
  Page& page = *members_[static_cast<size_t>(rank_)].page;
  if (page.state.load(std::memory_order_acquire) != kActive) return;
  page.code = static_cast<uint32_t>(status.code());
  page.culprit = RankOf(status).value_or(-1);
  const size_t size = std::min(status.message().size(), sizeof page.text - 1);
  std::memcpy(page.text, status.message().data(), size);
  page.text[size] = 0;
  page.state.store(kFailed, std::memory_order_release);
}

absl::Status RankBoard::Failure() const {
  for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank) {
    const Page* page = members_[static_cast<size_t>(rank)].page;
    if (rank == rank_ || page == nullptr ||
        page->state.load(std::memory_order_acquire) != kFailed) {
      continue;
    }
    auto code = static_cast<absl::StatusCode>(page->code);
    if (code != absl::StatusCode::kDeadlineExceeded && code != absl::StatusCode::kInvalidArgument) {
      code = absl::StatusCode::kUnavailable;
    }
    const int culprit = page->culprit >= 0 && page->culprit < static_cast<int>(members_.size())
                            ? page->culprit
                            : rank;
    const absl::string_view text(page->text, strnlen(page->text, sizeof page->text));
    return WithRank(absl::Status(code, absl::StrCat("rank ", rank, " gave up: ", text)), culprit);
  }
  return absl::OkStatus();
}

absl::Status RankBoard::Absence() const {
  for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank) {
    const Member& member = members_[static_cast<size_t>(rank)];
    if (rank == rank_) continue;
    if (member.process.has_value() && !member.process->Alive()) {
      return WithRank(absl::UnavailableError(absl::StrCat("rank ", rank, " (process ",
                                                          member.process->pid(), ") died")),
                      rank);
    }
    if (member.page != nullptr && member.page->state.load(std::memory_order_acquire) == kLeft) {
      return WithRank(absl::UnavailableError(absl::StrCat("rank ", rank, " left the group")), rank);
    }
  }
  return absl::OkStatus();
}

std::optional<int> RankBoard::Late(uint64_t sequence) const {
  std::optional<int> unfinished;
  std::optional<int> absent;
  for (int rank = static_cast<int>(members_.size()) - 1; rank >= 0; --rank) {
    const Member& member = members_[static_cast<size_t>(rank)];
    if (rank == rank_) continue;
    if (member.process.has_value() && member.process->Stopped()) return rank;
    if (member.page == nullptr) continue;
    if (member.page->begun.load(std::memory_order_acquire) < sequence) absent = rank;
    if (member.page->finished.load(std::memory_order_acquire) + 1 < sequence) unfinished = rank;
  }
  return unfinished.has_value() ? unfinished : absent;
}

std::string RankBoard::Describe(int rank) const {
  const Member& member = members_[static_cast<size_t>(rank)];
  if (!member.process.has_value()) return absl::StrCat("rank ", rank);
  return absl::StrCat("rank ", rank, " (process ", member.process->pid(),
                      member.process->Stopped() ? ", which is stopped)" : ")");
}

}  // namespace sheaf
