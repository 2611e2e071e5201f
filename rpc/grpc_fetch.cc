// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Blocks of bytes on request, over connections of their own (rpc/blocks), so that no block delays a
// frame. grpc_link_fetch.cc is for peers without an address.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/grpc_links_parts.h"

namespace sheaf {

// --- the asking end ---

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
  BlockFetcher::Question question;
  question.request = std::move(fetch.request);
  question.deadline = fetch.deadline;
  question.done = std::move(fetch.done);
  link->current->Sign(&question);
  if (!FetcherOf(link)->Ask(question)) {
    FailFetch(std::move(question.done),
              absl::UnavailableError("this machine gives no more threads, and a fetch needs one"),
              actions);
  }
}

std::shared_ptr<BlockFetcher> GrpcLinks::FetcherOf(const std::shared_ptr<Link>& asked) {
  Link& link = *asked;
  if (link.fetcher != nullptr && link.fetch_address == link.address &&
      link.fetch_tls == block_tls_) {
    return link.fetcher;
  }
  BlockFetcher::Options options;
  options.address = link.address;
  options.tls = block_tls_;
  options.peer_name = options_.credentials.peer_name;
  options.idle_limit = options_.idle_limit / 2;
  options.on_bytes = [this](uint64_t bytes) {
    const MutexLock lock(mutex_);
    figures_.fetched_bytes += bytes;
  };
  options.renew = [this, link = std::weak_ptr<Link>(asked)](BlockFetcher::Question& question) {
    const MutexLock lock(mutex_);
    const std::shared_ptr<Link> known = link.lock();
    if (known == nullptr || known->gone || known->current == nullptr) return false;
    known->current->Sign(&question);
    return true;
  };
  // What the one before was asked for it still brings.
  link.fetcher = std::make_shared<BlockFetcher>(std::move(options), block_threads_);
  link.fetch_address = link.address;
  link.fetch_tls = block_tls_;
  const auto expired = [](const std::weak_ptr<BlockFetcher>& each) { return each.expired(); };
  std::erase_if(fetchers_, expired);
  std::erase_if(link.fetchers, expired);
  fetchers_.push_back(link.fetcher);
  link.fetchers.push_back(link.fetcher);
  return link.fetcher;
}

Nanos GrpcLinks::last_block(ProcessId peer) const {
  const MutexLock lock(mutex_);
  Nanos last = 0;
  for (const auto& [key, link] : links_) {
    if (key.second != peer.packed()) continue;
    last = std::max(last, link->blocks_moved_at);
    for (const std::weak_ptr<BlockFetcher>& each : link->fetchers) {
      if (const std::shared_ptr<BlockFetcher> fetcher = each.lock(); fetcher != nullptr)
        last = std::max(last, fetcher->moved_at());
    }
  }
  return last;
}

void GrpcLinks::CloseFetchers(const absl::Status& reason) {
  for (const std::weak_ptr<BlockFetcher>& each : fetchers_) {
    if (const std::shared_ptr<BlockFetcher> fetcher = each.lock(); fetcher != nullptr)
      fetcher->Close(std::string(reason.message()));
  }
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

// --- the asked end ---

std::unique_ptr<BlockService> GrpcLinks::MakeBlockService() {
  BlockService::Options options;
  options.idle_limit = options_.idle_limit;
  options.silence_limit = options_.silence_limit;
  options.peer_name = options_.credentials.peer_name;
  options.tls = [this] {
    const MutexLock lock(mutex_);
    return block_tls_;
  };
  options.prove = [this](uint64_t connection, const Digest& nonce) -> std::optional<Digest> {
    const MutexLock lock(mutex_);
    const auto known = sessions_.find(connection);
    if (known == sessions_.end()) return std::nullopt;
    return known->second->Proof(nonce);
  };
  options.check = [this](const FetchTicket& ticket) -> absl::StatusOr<ProcessId> {
    const MutexLock lock(mutex_);
    const auto known = sessions_.find(ticket.connection);
    if (known == sessions_.end())
      return absl::UnauthenticatedError("a fetch of a connection that is over");
    const absl::Status verdict = known->second->Check(ticket);
    if (!verdict.ok()) return verdict;
    return known->second->peer();
  };
  options.on_fetch = [this](ProcessId peer, std::string request, LinksOptions::Respond respond) {
    if (!options_.on_fetch) return respond(absl::UnavailableError("nothing is served here"));
    options_.on_fetch(peer, std::move(request), std::move(respond));
  };
  options.on_proven = [this](const std::string& peer) { listener_->Proven(peer); };
  options.on_refused = [this] {
    const MutexLock lock(mutex_);
    ++figures_.refused_handshakes;
  };
  options.on_bytes = [this](uint64_t bytes) {
    const MutexLock lock(mutex_);
    figures_.served_bytes += bytes;
  };
  return std::make_unique<BlockService>(std::move(options), block_threads_);
}

}  // namespace sheaf
