// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Blocks of bytes on request: one call each, on a channel of its own per peer, so that no block
// delays a frame. grpc_link_fetch.cc is for peers without an address.
//
//   metadata  FetchTicket, looked at before the request is read
//   request   the user's
//   answer    size of the head (8 bytes), head, bytes; or a status
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/text/same_secret.h"
#include "rpc/grpc_links_parts.h"
#include "rpc/link_wire.h"

namespace sheaf {
namespace {

constexpr uint64_t kMaxHeadBytes = 1 << 20;
constexpr uint64_t kMaxBlockBytes = uint64_t{1} << 30;

// Head and bytes as gRPC received them.
class SlicedBlock final : public ReceivedBlock {
 public:
  // kInvalidArgument: not an answer to a fetch.
  static absl::StatusOr<std::unique_ptr<ReceivedBlock>> Make(const grpc::ByteBuffer& buffer) {
    auto block = std::make_unique<SlicedBlock>();
    const uint64_t total = buffer.Length();
    uint64_t head_size = 0;
    if (total < sizeof head_size || !buffer.Dump(&block->slices_).ok()) {
      return absl::InvalidArgumentError(absl::StrCat("a block of ", total, " bytes has no head"));
    }
    block->Copy(0, sizeof head_size, reinterpret_cast<char*>(&head_size));
    if (head_size > kMaxHeadBytes || head_size > total - sizeof head_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("the head of a block of ", total, " bytes has ", head_size));
    }
    block->head_.resize(head_size);
    block->Copy(sizeof head_size, head_size, block->head_.data());
    block->begin_ = sizeof head_size + head_size;
    block->size_ = total - block->begin_;
    return block;
  }

  const std::string& head() const override { return head_; }
  uint64_t size() const override { return size_; }
  uint32_t CopyTo(std::span<char> to) const override {
    return Copy(begin_, std::min<uint64_t>(size_, to.size()), to.data());
  }

 private:
  // `size` bytes from `at` on; their Crc32c.
  uint32_t Copy(uint64_t at, uint64_t size, char* to) const {
    uint32_t crc = 0;
    for (const grpc::Slice& slice : slices_) {
      if (size == 0) break;
      if (at >= slice.size()) {
        at -= slice.size();
        continue;
      }
      const uint64_t part = std::min<uint64_t>(size, slice.size() - at);
      crc = CopyWithCrc32c(to, {reinterpret_cast<const char*>(slice.begin()) + at, part}, crc);
      to += part;
      size -= part;
      at = 0;
    }
    return crc;
  }

  std::vector<grpc::Slice> slices_;
  std::string head_;
  uint64_t begin_ = 0, size_ = 0;
};

}  // namespace

// --- the asking end ---

class GrpcLinks::FetchCall : public std::enable_shared_from_this<FetchCall> {
 public:
  FetchCall(GrpcLinks* links, std::shared_ptr<grpc::Channel> channel, const FetchTicket& ticket,
            PendingFetch fetch)
      : links_(links), stub_(std::move(channel)), done_(std::move(fetch.done)) {
    const grpc::Slice slice = CopyToSlice(fetch.request);
    request_ = grpc::ByteBuffer(&slice, 1);
    context_.AddMetadata(kTicketKey, EncodeTicket(ticket));
    const Nanos left = std::max<Nanos>(fetch.deadline - MonotonicNow(), kMillisecond);
    context_.set_deadline(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(left, GPR_TIMESPAN)));
  }

  void Start() {
    stub_.UnaryCall(
        &context_, kFetchMethod, {}, &request_, &response_,
        [self = shared_from_this()](const grpc::Status& status) { self->Finished(status); });
  }
  void Cancel() { context_.TryCancel(); }

 private:
  void Finished(const grpc::Status& status) {
    if (!status.ok()) {
      // The ticket's connection was replaced while the call was on its way.
      done_(status.error_code() == grpc::StatusCode::UNAUTHENTICATED
                ? absl::UnavailableError(status.error_message())
                : FromGrpc(status));
    } else if (absl::Status named = links_->CheckPeerName(context_.auth_context().get());
               !named.ok()) {
      done_(absl::UnavailableError(named.message()));
    } else {
      absl::StatusOr<std::unique_ptr<ReceivedBlock>> block = SlicedBlock::Make(response_);
      response_.Clear();
      if (block.ok()) {
        const MutexLock lock(links_->mutex_);
        links_->figures_.fetched_bytes += (*block)->size();
      }
      done_(std::move(block));
    }
    done_ = nullptr;
    const MutexLock lock(links_->mutex_);
    links_->fetch_calls_.erase(shared_from_this());
    links_->nothing_runs_.NotifyAll();
  }

  GrpcLinks* const links_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_, response_;
  FetchDone done_;
};

void GrpcLinks::Fetch(ProcessId self, ProcessId peer, std::string request, Nanos timeout,
                      FetchDone done) {
  Actions actions;
  {
    const MutexLock lock(mutex_);
    if (stopping_ || forgotten_.contains(peer)) {
      FailFetch(std::move(done),
                absl::UnavailableError(absl::StrCat(peer.ToString(), " was declared dead")),
                &actions);
    } else {
      const auto [end, guest] = SelfNamed(self);
      const std::shared_ptr<Link> link = FindOrMake(end, guest, peer);
      PendingFetch fetch{std::move(request), Deadline(MonotonicNow(), timeout), std::move(done)};
      if (link->current != nullptr) {
        StartFetch(link, std::move(fetch), &actions);
      } else {
        const auto later = std::upper_bound(
            link->waiting_fetches.begin(), link->waiting_fetches.end(), fetch.deadline,
            [](Nanos deadline, const PendingFetch& other) { return deadline < other.deadline; });
        link->waiting_fetches.insert(later, std::move(fetch));
        actions.tick = true;
      }
    }
  }
  Run(actions);
}

void GrpcLinks::StartFetch(const std::shared_ptr<Link>& link, PendingFetch fetch,
                           Actions* actions) {
  if (link->address.empty()) return StartLinkFetch(link, std::move(fetch), actions);
  const uint64_t version = certificates_ != nullptr ? certificates_->version() : 0;
  if (link->fetch_channel == nullptr || link->fetch_address != link->address ||
      link->fetch_certificates != version) {
    link->fetch_address = link->address;
    link->fetch_certificates = version;
    link->fetch_channel =
        MakeChannel({link->address, certificates_.get(), options_.silence_limit, true});
  }
  Connection& connection = *link->current;
  const FetchTicket ticket =
      MakeTicket(connection.session_key, connection.number, ++connection.fetches, fetch.request);
  auto call = std::make_shared<FetchCall>(this, link->fetch_channel, ticket, std::move(fetch));
  fetch_calls_.insert(call);
  actions->fetches.push_back(std::move(call));
}

void GrpcLinks::RunFetches(Actions& actions) {
  for (const auto& call : actions.fetches) call->Start();
}

void GrpcLinks::FailFetch(FetchDone done, const absl::Status& reason, Actions* actions) {
  ++running_;
  actions->failed_fetches.emplace_back(std::move(done), reason);
}

void GrpcLinks::FailFetches(Link* link, const absl::Status& reason, Actions* actions) {
  for (PendingFetch& fetch : link->waiting_fetches)
    FailFetch(std::move(fetch.done), reason, actions);
  link->waiting_fetches.clear();
}

void GrpcLinks::CancelFetches() {
  for (const auto& call : fetch_calls_) call->Cancel();
}

// --- the asked end ---

class GrpcLinks::FetchServing final : public grpc::ServerGenericBidiReactor,
                                      public std::enable_shared_from_this<FetchServing> {
 public:
  FetchServing(GrpcLinks* links, std::shared_ptr<FetchSession> session, const Digest& request_hash)
      : links_(links), session_(std::move(session)), request_hash_(request_hash) {}

  void Begin() { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    const FlatBytes request = ok ? Flatten(request_) : FlatBytes{};
    if (!ok || !SameSecret(AsView(Sha256(request.bytes)), AsView(request_hash_))) {
      return Answer(absl::UnauthenticatedError("a fetch whose request was changed on its way"));
    }
    ProcessId peer;
    {
      MutexLock lock(links_->mutex_);
      if (links_->stopping_ || !links_->options_.on_fetch) {
        lock.Unlock();
        return Answer(absl::UnavailableError("nothing is served here"));
      }
      peer = session_->peer();
      ++links_->running_;
    }
    // Whoever lets the last copy of `respond` go without a word has answered too.
    std::shared_ptr<FetchServing> once(this, [keep = shared_from_this()](FetchServing* serving) {
      serving->Answer(absl::CancelledError("the fetch was not answered"));
    });
    links_->options_.on_fetch(
        peer, std::string(request.bytes),
        [once = std::move(once)](absl::StatusOr<Block> block) { once->Answer(std::move(block)); });
    MutexLock lock(links_->mutex_);
    --links_->running_;
    links_->nothing_runs_.NotifyAll();
  }

  void OnCancel() override { Answer(absl::CancelledError("the fetch was cancelled")); }

  void OnDone() override {
    response_.Clear();
    const std::shared_ptr<FetchServing> self = shared_from_this();
    const MutexLock lock(links_->mutex_);
    links_->servings_.erase(self);
    links_->nothing_runs_.NotifyAll();
  }

  void Answer(absl::StatusOr<Block> block) {
    {
      const MutexLock lock(mutex_);
      if (std::exchange(answered_, true)) return;
    }
    if (block.ok() &&
        (block->bytes.size() > kMaxBlockBytes || block->head.size() > kMaxHeadBytes)) {
      block = absl::InvalidArgumentError(absl::StrCat(
          "a block of ", block->bytes.size(), " bytes with a head of ", block->head.size(),
          "; the limits are ", kMaxBlockBytes, " and ", kMaxHeadBytes));
    }
    if (!block.ok()) return Finish(ToGrpc(block.status()));
    const uint64_t head_size = block->head.size();
    std::string head(reinterpret_cast<const char*>(&head_size), sizeof head_size);
    head.append(block->head);
    std::vector<grpc::Slice> slices{CopyToSlice(head)};
    if (!block->bytes.empty()) {
      slices.push_back(
          SliceOver({block->bytes.data(), block->bytes.size()}, std::move(block->hold)));
    }
    response_ = grpc::ByteBuffer(slices.data(), slices.size());
    {
      const MutexLock lock(links_->mutex_);
      links_->figures_.served_bytes += block->bytes.size();
    }
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }

 private:
  GrpcLinks* const links_;
  const std::shared_ptr<FetchSession> session_;
  const Digest request_hash_;
  grpc::ByteBuffer request_, response_;
  Mutex mutex_;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
};

grpc::ServerGenericBidiReactor* GrpcLinks::ServeFetch(grpc::GenericCallbackServerContext* context) {
  const auto found = context->client_metadata().find(kTicketKey);
  absl::StatusOr<FetchTicket> ticket = absl::UnauthenticatedError("a fetch without a ticket");
  if (found != context->client_metadata().end()) {
    ticket = DecodeTicket({found->second.data(), found->second.size()});
  }
  std::shared_ptr<FetchServing> serving;
  absl::Status verdict = ticket.status();
  {
    const MutexLock lock(mutex_);
    std::shared_ptr<FetchSession> session;
    if (verdict.ok()) {
      const auto known = sessions_.find(ticket->connection);
      verdict = absl::UnauthenticatedError("a fetch of a connection that is over");
      if (known != sessions_.end()) {
        session = known->second;
        verdict = session->Check(*ticket);
      }
    }
    if (!verdict.ok()) {
      ++figures_.refused_handshakes;
    } else {
      listener_->Proven(context->peer());
    }
    serving = std::make_shared<FetchServing>(this, std::move(session),
                                             ticket.ok() ? ticket->request_hash : Digest{});
    servings_.insert(serving);
  }
  if (verdict.ok()) {
    serving->Begin();
  } else {
    serving->Answer(absl::UnauthenticatedError(verdict.message()));
  }
  return serving.get();
}

}  // namespace sheaf
