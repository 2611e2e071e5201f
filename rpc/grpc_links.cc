// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/grpc_links.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/random.h"
#include "rpc/grpc_links_parts.h"

namespace sheaf {

GrpcLinks::Key GrpcLinks::KeyOf(const Link& link) {
  return {link.guest ? kGuestKey : link.self.packed(), link.peer.packed()};
}

// Who speaks when the user says `self`, and whether as a guest.
std::pair<ProcessId, bool> GrpcLinks::SelfNamed(ProcessId self) const {
  if (self != kGcs || std::find(ends_.begin(), ends_.end(), self) != ends_.end()) {
    return {self, false};
  }
  // A guest that meanwhile has its number.
  if (!ends_.empty()) return {ends_.front(), false};
  return {self, true};
}

std::shared_ptr<GrpcLinks::Link> GrpcLinks::Find(ProcessId self, ProcessId peer) const {
  const auto [end, guest] = SelfNamed(self);
  const auto found = links_.find({guest ? kGuestKey : end.packed(), peer.packed()});
  return found == links_.end() ? nullptr : found->second;
}

std::shared_ptr<GrpcLinks::Link> GrpcLinks::FindOrMake(ProcessId self, bool guest, ProcessId peer) {
  std::shared_ptr<Link>& link = links_[{guest ? kGuestKey : self.packed(), peer.packed()}];
  if (link != nullptr) return link;
  LinkState::Options options;
  options.stream = EntropySeed() | 1;
  options.max_unacknowledged_bytes = options_.max_unacknowledged_bytes;
  options.ping_period = options_.ping_period;
  link = std::make_shared<Link>(options);
  link->self = self;
  link->guest = guest;
  link->peer = peer;
  link->lost_at = MonotonicNow();
  const auto address = addresses_.find(peer);
  if (address != addresses_.end()) link->address = address->second;
  return link;
}

void GrpcLinks::SetTerm(const GcsTerm& term) {
  const MutexLock lock(mutex_);
  fence_.SetTerm(term);
}

void GrpcLinks::AddSelf(ProcessId end) {
  Actions actions;
  {
    const MutexLock lock(mutex_);
    if (std::find(ends_.begin(), ends_.end(), end) != ends_.end()) return;
    ends_.push_back(end);
    last_sent_ = nullptr;
    if (!end.is_raylet()) return;
    std::vector<std::shared_ptr<Link>> guests;
    for (const auto& [key, link] : links_) {
      if (link->guest) guests.push_back(link);
    }
    for (const auto& link : guests) {
      links_.erase(KeyOf(*link));
      link->guest = false;
      link->self = end;
      links_[KeyOf(*link)] = link;
      link->state.QueueRename(end);
      if (link->current != nullptr) Pump(link->current, &actions);
    }
  }
  Run(actions);
}

void GrpcLinks::SetAddress(ProcessId peer, const std::string& address) {
  Actions actions;
  {
    const MutexLock lock(mutex_);
    addresses_[peer] = address;
    for (const auto& [key, link] : links_) {
      if (link->peer != peer || link->address == address) continue;
      link->address = address;
      if (address.empty()) {
        link->keep = false;
        if (link->dialling != nullptr) {
          Drop(link->dialling, absl::CancelledError("it is dialled no more"), &actions);
        }
        continue;
      }
      link->next_dial = 0;
      link->backoff = kFirstBackoff;
      actions.tick = true;
    }
  }
  Run(actions);
}

void GrpcLinks::Forget(ProcessId peer) {
  Actions actions;
  {
    const MutexLock lock(mutex_);
    forgotten_.insert(peer);
    last_sent_ = nullptr;
    addresses_.erase(peer);
    std::set<std::shared_ptr<Link>> gone;
    for (const auto& [key, link] : links_) {
      if (link->peer == peer || key.second == peer.packed()) gone.insert(link);
    }
    absl::erase_if(links_, [&](const auto& entry) { return gone.contains(entry.second); });
    for (const auto& link : gone) {
      const absl::Status reason =
          absl::UnavailableError(absl::StrCat(peer.ToString(), " was declared dead"));
      link->gone = true;
      link->deliveries.clear();
      if (link->state.peer_stream() != 0 && link->peer.node == 0) {
        forgotten_streams_.insert(link->state.peer_stream());
      }
      FailFetches(link.get(), reason, &actions);
      FailLinkFetches(link.get(), kForever, reason, &actions);
      for (const uint64_t session : link->sessions) sessions_.erase(session);
      for (const std::weak_ptr<BlockFetcher>& each : link->fetchers) {
        if (const auto fetcher = each.lock()) fetcher->Close(std::string(reason.message()));
      }
      link->fetcher = nullptr;
      if (link->current != nullptr) Drop(link->current, reason, &actions);
      if (link->dialling != nullptr) Drop(link->dialling, reason, &actions);
    }
  }
  Run(actions);
}

void GrpcLinks::RenamePeer(const std::shared_ptr<Link>& link, ProcessId name, Actions* actions) {
  if (link->peer == name) return;
  last_sent_ = nullptr;
  const ProcessId before = link->peer;
  Report(link, false,
         absl::CancelledError(absl::StrCat("the guest is ", name.ToString(), " from here on")),
         actions);
  std::shared_ptr<Link>& place = links_[{KeyOf(*link).first, name.packed()}];
  if (place != nullptr && place != link) {
    // Frames for the new name that waited for a connection. Had it met the peer already, the
    // handshake would have found this link by its stream.
    Link& other = *place;
    link->state.Take(std::move(other.state));
    for (PendingFetch& fetch : other.waiting_fetches) {
      link->waiting_fetches.push_back(std::move(fetch));
    }
    other.waiting_fetches.clear();
    other.gone = true;
    const absl::Status reason = absl::CancelledError("another connection serves this end");
    if (other.current != nullptr) Drop(other.current, reason, actions);
    if (other.dialling != nullptr) Drop(other.dialling, reason, actions);
  }
  place = link;  // The guest's name leads here too, for what is still sent to it.
  link->peer = name;
  link->told = absl::OkStatus();
  const auto address = addresses_.find(name);
  if (address != addresses_.end()) link->address = address->second;
  for (const uint64_t number : link->sessions) {
    const auto session = sessions_.find(number);
    if (session != sessions_.end()) session->second->Rename(name);
  }
  Log(LogLevel::kInfo, "guest ", before.ToString(), " is ", name.ToString());
  if (link->current != nullptr) Report(link, true, absl::OkStatus(), actions);
  while (link->current != nullptr && !link->waiting_fetches.empty()) {
    PendingFetch fetch = std::move(link->waiting_fetches.front());
    link->waiting_fetches.pop_front();
    StartFetch(link, std::move(fetch), actions);
  }
}

void GrpcLinks::Report(const std::shared_ptr<Link>& link, bool up, const absl::Status& reason,
                       Actions* actions) {
  if (link->gone || (link->up == up && link->told == reason)) return;
  if (!up && !link->up && reason.code() == absl::StatusCode::kCancelled) return;
  link->up = up;
  link->told = reason;
  Delivery delivery;
  delivery.peer = link->peer;
  delivery.up = up;
  delivery.reason = reason;
  link->deliveries.push_back(std::move(delivery));
  actions->deliveries.push_back(link);
}

// --- frames ---

namespace {

bool FitsLink(ProcessId peer, const LinkFrame& frame) {
  if (frame.body.size() <= kMaxFrameBytes) return true;
  Log(LogLevel::kError, "a frame of ", frame.body.size(), " bytes for ", peer.ToString(),
      " is over the limit of ", kMaxFrameBytes, " and goes nowhere");
  return false;
}

}  // namespace

void GrpcLinks::SendAhead(ProcessId self, ProcessId peer, const LinkFrame& frame) {
  if (!FitsLink(peer, frame)) return;
  Actions actions;
  {
    const MutexLock lock(mutex_);
    Link* const link = FindToSend(self, peer);
    if (link == nullptr) return;
    link->state.QueueAhead(frame);
    ++figures_.frames_sent;
    if (link->current != nullptr) {
      Pump(link->current, &actions);
    } else {
      actions.tick = WantsDial(*link, MonotonicNow());
    }
  }
  Run(actions);
}

void GrpcLinks::Send(ProcessId self, ProcessId peer, const LinkFrame& frame) {
  if (!FitsLink(peer, frame)) return;
  const MutexLock lock(mutex_);
  Link* const link = FindToSend(self, peer);
  if (link == nullptr) return;
  link->state.Queue(frame);
  ++figures_.frames_sent;
  if (!std::exchange(link->dirty, true)) dirty_.push_back(last_sent_);
}

GrpcLinks::Link* GrpcLinks::FindToSend(ProcessId self, ProcessId peer) {
  if (stopping_) return nullptr;
  if (last_sent_ != nullptr && last_sent_ends_ == std::pair(self, peer)) return last_sent_.get();
  if (forgotten_.contains(peer)) return nullptr;
  const auto [end, guest] = SelfNamed(self);
  last_sent_ = FindOrMake(end, guest, peer);
  last_sent_ends_ = {self, peer};
  return last_sent_.get();
}

void GrpcLinks::Flush() {
  Actions actions;
  {
    const MutexLock lock(mutex_);
    if (dirty_.empty()) return;
    const Nanos now = MonotonicNow();
    for (const auto& link : dirty_) {
      link->dirty = false;
      link->state.Flush();
      if (link->current != nullptr) {
        Pump(link->current, &actions);
      } else if (WantsDial(*link, now)) {
        actions.tick = true;
      }
    }
    dirty_.clear();
  }
  Run(actions);
}

size_t GrpcLinks::queued_bytes(ProcessId peer) const {
  const MutexLock lock(mutex_);
  size_t bytes = 0;
  for (const auto& [key, link] : links_) {
    if (key.second == peer.packed()) bytes += link->state.queued_bytes();
  }
  return bytes;
}

Nanos GrpcLinks::last_frame(ProcessId peer) const {
  const MutexLock lock(mutex_);
  Nanos last = 0;
  for (const auto& [key, link] : links_) {
    if (key.second == peer.packed()) last = std::max(last, link->state.last_frame());
  }
  return last;
}

GcsTerm GrpcLinks::followed_term() const {
  const MutexLock lock(mutex_);
  return fence_.term();
}

void GrpcLinks::Pump(const std::shared_ptr<Connection>& connection, Actions* actions) {
  if (connection->writing || connection->stream == nullptr || connection->phase == Phase::kOver) {
    return;
  }
  grpc::ByteBuffer message;
  if (!connection->outbox.empty()) {
    message = std::move(connection->outbox.front());
    connection->outbox.pop_front();
  } else if (connection->phase == Phase::kClosing) {
    actions->closes.emplace_back(connection->stream, connection->closing_status);
    Detach(connection, absl::UnavailableError("refused"), actions);
    return;
  } else if (connection->phase == Phase::kEstablished && connection->link->current == connection) {
    std::optional<OutgoingMessage> next = connection->link->state.NextToWrite(MonotonicNow());
    if (next.has_value()) {
      std::vector<grpc::Slice> slices;
      slices.push_back(
          CopyToSlice({reinterpret_cast<const char*>(&next->header), sizeof next->header}));
      if (next->payload != nullptr) {
        const std::string_view payload = *next->payload;
        slices.push_back(SliceOver(payload, std::move(next->payload)));
      }
      message = grpc::ByteBuffer(slices.data(), slices.size());
    } else if (!NextPart(connection, &message)) {
      return;
    }
    ++figures_.messages_sent;
    figures_.bytes_sent += message.Length();
  } else {
    return;
  }
  connection->writing = true;
  actions->writes.emplace_back(connection->stream, std::move(message));
}

void GrpcLinks::HandleMessage(const std::shared_ptr<Connection>& connection,
                              const grpc::ByteBuffer& message) {
  FlatBytes flat = Flatten(message);
  const absl::StatusOr<MessageHeader> header = ParseMessageHeader(flat.bytes, flat.bytes.size());
  Actions actions;
  {
    const MutexLock lock(mutex_);
    const std::shared_ptr<Link> link = connection->link;
    if (connection->phase != Phase::kEstablished || link->current != connection) return;
    if (!header.ok()) {
      Drop(connection, header.status(), &actions);
    } else {
      ++figures_.messages_received;
      figures_.bytes_received += flat.bytes.size();
      const std::string_view payload = flat.bytes.substr(sizeof(MessageHeader));
      absl::StatusOr<LinkState::Received> received =
          link->state.Receive(*header, flat.hold, payload, MonotonicNow());
      if (received.ok() &&
          (header->kind == MessageKind::kFetch || header->kind == MessageKind::kFetchPart)) {
        const absl::Status status = HandleFetch(connection, *header, payload, &actions);
        if (!status.ok()) received = status;
      }
      if (!received.ok()) {
        Drop(connection, received.status(), &actions);
      } else if (received->duplicate) {
        ++figures_.duplicates_dropped;
      } else if (received->sequence != 0 && header->kind == MessageKind::kRename) {
        RenamePeer(link, received->renamed, &actions);
        link->state.HandedOver(link->state.peer_stream(), received->sequence);
      } else if (received->sequence != 0) {
        figures_.frames_received += received->frames;
        Delivery delivery;
        delivery.peer = link->peer;
        delivery.batch =
            std::make_unique<PayloadBatch>(std::move(received->hold), received->payload);
        delivery.stream = link->state.peer_stream();
        delivery.sequence = received->sequence;
        link->deliveries.push_back(std::move(delivery));
        actions.deliveries.push_back(link);
      }
      Pump(connection, &actions);
    }
  }
  Run(actions);
}

// --- what is done without the lock ---

void GrpcLinks::Run(Actions& actions) {
  for (auto& [stream, message] : actions.writes) stream->Write(message);
  for (auto& [stream, status] : actions.closes) stream->Close(status);
  for (const auto& link : actions.deliveries) Deliver(link);
  for (auto& [done, status] : actions.failed_fetches) {
    // On the links' own thread: the caller may hold what `done` takes.
    executor_->Post([this, done = std::move(done), status = status] {
      done(status);
      const MutexLock lock(mutex_);
      --running_;
      nothing_runs_.NotifyAll();
    });
  }
  for (auto& [done, block] : actions.fetched) FinishFetch(std::move(done), std::move(block));
  for (LinkQuestion& question : actions.questions) AskUser(std::move(question));
  if (actions.tick) executor_->Post([this] { Tick(); });
}

void GrpcLinks::Deliver(const std::shared_ptr<Link>& link) {
  Actions actions;
  {
    MutexLock lock(mutex_);
    if (link->delivering) return;
    link->delivering = true;
    while (!link->deliveries.empty() && !stopping_) {
      Delivery delivery = std::move(link->deliveries.front());
      link->deliveries.pop_front();
      ++running_;
      lock.Unlock();
      if (delivery.batch != nullptr) {
        if (options_.on_frames) options_.on_frames(delivery.peer, std::move(delivery.batch));
      } else if (options_.on_link) {
        options_.on_link(delivery.peer, delivery.up, std::move(delivery.reason));
      }
      lock.Lock();
      --running_;
      if (delivery.sequence != 0) link->state.HandedOver(delivery.stream, delivery.sequence);
    }
    link->delivering = false;
    if (stopping_) nothing_runs_.NotifyAll();
    if (link->current != nullptr) Pump(link->current, &actions);
  }
  Run(actions);
}

GrpcLinks::Figures GrpcLinks::figures() const {
  const MutexLock lock(mutex_);
  Figures now = figures_;
  for (const auto& [key, link] : links_) now.queued_bytes += link->state.queued_bytes();
  if (listener_ != nullptr) now.refused_connections = listener_->refused();
  return now;
}

}  // namespace sheaf
