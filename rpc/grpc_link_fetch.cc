// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Fetches over the link itself, where the other end cannot be dialled: the connection that it keeps
// up carries the question, and the answer in parts.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/grpc_links_parts.h"

namespace sheaf {
namespace {

grpc::ByteBuffer MessageOf(MessageKind kind, uint64_t acknowledged, std::string_view front,
                           std::string_view bytes, std::shared_ptr<const void> hold) {
  MessageHeader header;
  header.magic = kMessageMagic;
  header.kind = kind;
  header.payload_bytes = static_cast<uint32_t>(front.size() + bytes.size());
  header.acknowledged = acknowledged;
  std::string begin(reinterpret_cast<const char*>(&header), sizeof header);
  begin.append(front);
  std::vector<grpc::Slice> slices{CopyToSlice(begin)};
  if (!bytes.empty()) slices.push_back(SliceOver(bytes, std::move(hold)));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace

// The answer to one question. Whoever lets the last copy go without a word has answered too.
class GrpcLinks::LinkServing {
 public:
  LinkServing(std::shared_ptr<Gate> gate, std::shared_ptr<Connection> connection, uint64_t number)
      : gate_(std::move(gate)), connection_(std::move(connection)), number_(number) {}
  ~LinkServing() { Answer(absl::CancelledError("the fetch was not answered")); }
  LinkServing(const LinkServing&) = delete;
  LinkServing& operator=(const LinkServing&) = delete;

  void Answer(absl::StatusOr<Block> block) {
    const MutexLock open(gate_->mutex);
    GrpcLinks* const links = gate_->links;
    const std::shared_ptr<Connection> connection = std::exchange(connection_, nullptr);
    if (links == nullptr || connection == nullptr) return;
    Actions actions;
    {
      const MutexLock lock(links->mutex_);
      if (connection->phase != Phase::kEstablished) return;
      if (block.ok()) links->figures_.served_bytes += block->bytes.size();
      connection->blocks.emplace_back(number_, std::move(block));
      links->Pump(connection, &actions);
    }
    links->Run(actions);
  }

 private:
  const std::shared_ptr<Gate> gate_;
  std::shared_ptr<Connection> connection_;  // Until it is answered.
  const uint64_t number_;
};

void GrpcLinks::StartLinkFetch(const std::shared_ptr<Link>& link, PendingFetch fetch,
                               Actions* actions) {
  if (fetch.request.size() > kPieceBytes / 2) {
    return FailFetch(std::move(fetch.done),
                     absl::InvalidArgumentError(absl::StrCat("a request of ", fetch.request.size(),
                                                             " bytes to an end that cannot be "
                                                             "dialled; the limit is ",
                                                             kPieceBytes / 2)),
                     actions);
  }
  const uint64_t number = ++link->last_link_fetch;
  link->current->outbox.push_back(MessageOf(MessageKind::kFetch, link->state.Acknowledge(),
                                            EncodeFetch(number, fetch.request), {}, nullptr));
  Link::LinkFetch& mine = link->link_fetches[number];
  mine.deadline = fetch.deadline;
  mine.moved_at = MonotonicNow();
  mine.done = std::move(fetch.done);
  Pump(link->current, actions);
}

absl::Status GrpcLinks::HandleFetch(const std::shared_ptr<Connection>& connection,
                                    const MessageHeader& header, std::string_view payload,
                                    Actions* actions) {
  Link& link = *connection->link;
  if (header.kind == MessageKind::kFetch) {
    const auto question = ParseFetch(payload);
    if (!question.ok()) return question.status();
    if (stopping_) return absl::OkStatus();
    ++running_;
    actions->questions.push_back(
        {connection, link.peer, question->first, std::string(question->second)});
    return absl::OkStatus();
  }
  const absl::StatusOr<FetchPartHeader> part = BlockAssembly::Parse(payload);
  if (!part.ok()) return part.status();
  const auto found = link.link_fetches.find(part->number);
  if (found == link.link_fetches.end()) return absl::OkStatus();  // It was in time for nobody.
  const absl::Status added = found->second.block.Add(*part, payload);
  if (!added.ok()) return added;
  const bool complete = found->second.block.complete();
  const Nanos now = MonotonicNow();
  link.last_turn = std::max(link.last_turn, std::exchange(found->second.moved_at, now));
  link.blocks_moved += payload.size();
  if (complete || link.blocks_moved >= BlockSocket::kProgressBytes) {
    link.blocks_moved_at = now;
    link.blocks_moved = 0;
  }
  if (!complete) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<ReceivedBlock>> block = found->second.block.Take();
  if (block.ok()) figures_.fetched_bytes += (*block)->size();
  ++running_;
  actions->fetched.emplace_back(std::move(found->second.done), std::move(block));
  link.link_fetches.erase(found);
  return absl::OkStatus();
}

// Those whose time ends at `until`; all, with kForever. Blocks come in turns, so all have time while
// one moves, but for those that were passed over: what is in line has a part between any two of
// another. Parts that were on their way already may come kPatience later.
void GrpcLinks::FailLinkFetches(Link* link, Nanos until, const absl::Status& reason,
                                Actions* actions) {
  const Nanos moves_until =
      link->blocks_moved_at == 0 ? 0 : link->blocks_moved_at + BlockFetcher::kPatience;
  const auto end_of = [&](const Link::LinkFetch& fetch) {
    const Nanos in_line_at = std::max(fetch.deadline, fetch.moved_at);
    const bool passed_over = link->last_turn - BlockFetcher::kPatience > in_line_at;
    return passed_over ? fetch.deadline : std::max(fetch.deadline, moves_until);
  };
  for (auto at = link->link_fetches.begin(); at != link->link_fetches.end();) {
    if (end_of(at->second) > until) {
      ++at;
      continue;
    }
    FailFetch(std::move(at->second.done), reason, actions);
    at = link->link_fetches.erase(at);
  }
}

bool GrpcLinks::NextPart(const std::shared_ptr<Connection>& connection, grpc::ByteBuffer* message) {
  if (connection->blocks.empty()) return false;
  BlockParts& block = connection->blocks.front();
  BlockParts::Part part = block.Next();
  *message = MessageOf(MessageKind::kFetchPart, connection->link->state.Acknowledge(), part.front,
                       part.bytes, std::move(part.hold));
  if (block.done()) {
    connection->blocks.pop_front();
  } else if (connection->blocks.size() > 1) {  // In turns.
    connection->blocks.push_back(std::move(block));
    connection->blocks.pop_front();
  }
  return true;
}

void GrpcLinks::AskUser(LinkQuestion question) {
  auto serving =
      std::make_shared<LinkServing>(gate_, std::move(question.connection), question.number);
  if (options_.on_fetch) {
    options_.on_fetch(
        question.peer, std::move(question.request),
        [serving](absl::StatusOr<Block> block) { serving->Answer(std::move(block)); });
  } else {
    serving->Answer(absl::UnavailableError("nothing is served here"));
  }
  serving = nullptr;
  const MutexLock lock(mutex_);
  --running_;
  nothing_runs_.NotifyAll();
}

void GrpcLinks::FinishFetch(FetchDone done, absl::StatusOr<std::unique_ptr<ReceivedBlock>> block) {
  done(std::move(block));
  done = nullptr;
  const MutexLock lock(mutex_);
  --running_;
  nothing_runs_.NotifyAll();
}

}  // namespace sheaf
