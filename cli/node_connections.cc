// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/node_connections.h"

#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "gcs/frames_ahead.h"
#include "metrics/counter.h"
#include "proto/gcs.pb.h"
#include "rpc/listen_address.h"
#include "shm/attach.h"

namespace sheaf::cli {
namespace {

constexpr uint16_t kUsualPort = 6379;  // Of heads.

std::string TlsDirectory(const NodeFlags& flags, const Settings& settings) {
  return flags.tls_directory.empty() ? settings.tls_directory : flags.tls_directory;
}

absl::StatusOr<Credentials> LoadCredentials(const NodeFlags& flags, const Settings& settings) {
  Credentials credentials;
  const std::string tls = TlsDirectory(flags, settings);
  const std::string name =
      flags.tls_peer_name.empty() ? settings.tls_peer_name : flags.tls_peer_name;
  if (!tls.empty()) {
    SHEAF_ASSIGN_OR_RETURN(credentials, LoadCertificates(tls, name));
  } else if (!name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-peer-name ", name, " is about certificates: want --tls-dir too"));
  }
  if (flags.token_file.empty() && !settings.token.empty()) {
    SHEAF_ASSIGN_OR_RETURN(credentials.token, ParseToken(settings.token));
    return credentials;
  }
  if (flags.token_file.empty() && !settings.ray_auth_token.empty()) {
    credentials.token = TokenOf(settings.ray_auth_token);
    return credentials;
  }
  std::string file = flags.token_file.empty() ? settings.token_file : flags.token_file;
  if (file.empty()) file = settings.base_directory + "/token";
  if (flags.join.empty()) {
    SHEAF_ASSIGN_OR_RETURN(credentials.token, LoadOrMakeToken(file));
    return credentials;
  }
  // A cluster's token comes from its head: another one would only be refused there.
  absl::StatusOr<std::string> token = LoadToken(file);
  if (absl::IsNotFound(token.status())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no token to join ", flags.join, " with: there is no ", file,
        "; copy the head's token there, or name it with --token-file, SHEAF_TOKEN_FILE or "
        "SHEAF_TOKEN"));
  }
  if (!token.ok()) return token.status();
  credentials.token = *std::move(token);
  return credentials;
}

// What other nodes dial; empty: as this one listens.
absl::StatusOr<std::string> AdvertisedAddress(const NodeFlags& flags, const std::string& listen,
                                              const std::string& own_host) {
  if (!flags.advertise.empty()) {
    SHEAF_ASSIGN_OR_RETURN(const ListenAddress advertised, ParseListenAddress(flags.advertise));
    if (!advertised.is_unspecified()) return flags.advertise;
    return absl::InvalidArgumentError(
        absl::StrCat("--advertise-address ", flags.advertise,
                     " names no machine: want the address that other nodes reach this one by"));
  }
  SHEAF_ASSIGN_OR_RETURN(const ListenAddress listening, ParseListenAddress(listen));
  if (!listening.is_unspecified()) return std::string();
  if (flags.join.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--host ", flags.host,
                     " says where this node listens, but not where others find it: add "
                     "--advertise-address HOST:",
                     listening.port,
                     " with the address that they reach it by, or name that address with --host"));
  }
  return ListenAddress{own_host, 0}.ToString();  // 0: the port on which it listens.
}

// Once, in the log and to who starts the node.
void WarnOfPlainLinks(const std::string& listen_address, const Credentials& credentials) {
  const absl::StatusOr<ListenAddress> address = ParseListenAddress(listen_address);
  if (!address.ok() || address->is_loopback() || credentials.has_certificates()) return;
  const std::string words = absl::StrCat(
      "this node listens on ", address->port == 0 ? address->host : listen_address,
      " without encryption: who can read the network ",
      "between the nodes reads arguments, results, code and the variables of runtime environments ",
      "(the token admits nodes and is never sent). Use --tls-dir (sheaf cert init makes one), or ",
      "a network of your own");
  Log(LogLevel::kWarning, words);
  std::fprintf(stderr, "sheaf: warning: %s.\n", words.c_str());
}

}  // namespace

absl::StatusOr<std::unique_ptr<NodeConnections>> NodeConnections::Start(const NodeFlags& flags,
                                                                        const Settings& settings,
                                                                        bool listen,
                                                                        const std::string& own_host,
                                                                        ConnectionEvents events) {
  std::unique_ptr<NodeConnections> made(new NodeConnections(std::move(events)));
  made->hosts_gcs_ = flags.join.empty();
  LinksOptions options;
  SHEAF_ASSIGN_OR_RETURN(options.credentials, LoadCredentials(flags, settings));
  options.version = std::string(kSheafVersion);
  options.on_frames = [node = made.get()](ProcessId peer, std::unique_ptr<LinkBatch> batch) {
    node->OnFrames(peer, std::move(batch));
  };
  options.on_fetch = made->events_.on_fetch;
  options.on_link = [node = made.get()](ProcessId peer, bool up, absl::Status reason) {
    Log(up ? LogLevel::kInfo : LogLevel::kWarning, "the link to ",
        peer == kGcs ? std::string("the GCS") : absl::StrCat("node ", peer.node),
        up ? " is up" : " is down: ", std::string(reason.message()));
    if (peer.node != 0 && peer != kGcs) node->OnNodeLink(peer.node, up);
    if (peer == kGcs) node->OnGcsLink(up);
    if (up) {
      if (peer == kGcs && !node->hosts_gcs_) node->events_.on_unreachable("");
    } else if (node->hosts_gcs_) {  // It hears of a GCS elsewhere, too: when its own term is over.
      if (absl::IsAborted(reason)) node->events_.on_deposed(reason);
    } else if (peer == kGcs) {
      const bool refused = absl::IsUnauthenticated(reason) || absl::IsFailedPrecondition(reason);
      refused ? node->events_.on_refused(reason)
              : node->events_.on_unreachable(std::string(reason.message()));
    }
  };
  std::string on_any_port;
  const std::string host = flags.host.empty() ? "127.0.0.1" : flags.host;
  const bool usual = flags.port < 0 && flags.join.empty();
  const int port = flags.port < 0 ? (usual ? kUsualPort : 0) : flags.port;
  if (listen) {
    const std::string bracketed =
        absl::StrContains(host, ':') && host[0] != '[' ? absl::StrCat("[", host, "]") : host;
    options.listen_address = absl::StrCat(bracketed, ":", port);
    SHEAF_ASSIGN_OR_RETURN(options.advertise_address,
                           AdvertisedAddress(flags, options.listen_address, own_host));
    on_any_port = absl::StrCat(bracketed, ":0");
  }
  absl::StatusOr<std::unique_ptr<Links>> links = Links::Start(options);
  if (listen && usual && absl::IsAlreadyExists(links.status())) {  // Another cluster has it.
    options.listen_address = on_any_port;
    links = Links::Start(options);
  }
  if (!links.ok()) return links.status();
  if (listen) WarnOfPlainLinks(options.listen_address, options.credentials);
  made->links_ = *std::move(links);
  if (options.credentials.has_certificates()) {
    made->certificate_watch_ =
        std::make_unique<CertificateWatch>(TlsDirectory(flags, settings), options.credentials,
                                           [links = made->links_.get()](const Credentials& next) {
                                             return links->SetCertificates(next);
                                           });
  }
  if (listen) made->address_ = made->links_->address();
  if (!flags.join.empty()) made->links_->SetAddress(kGcs, flags.join);
  return made;
}

void NodeConnections::OnFrames(ProcessId peer, std::unique_ptr<LinkBatch> batch) {
  const std::shared_ptr<LinkBatch> shared = std::move(batch);
  bool between_nodes = false;
  shared->ForEach([&](const LinkFrame& frame) {
    if (frame.to == kGcs) {
      events_.to_gcs(peer, frame.kind, std::string(frame.body));
    } else if (frame.from == kGcs) {
      events_.from_gcs(frame.to, frame.kind, std::string(frame.body));
    } else {
      between_nodes = true;
    }
  });
  if (between_nodes) events_.on_frames(shared);
}

void NodeConnections::OnGcsLink(bool up) {
  gcs_up_ = up;
  events_.on_gcs_link(up, links_->followed_term().term);
}

void NodeConnections::Pass(ProcessId self, ProcessId peer, const LinkFrame& frame) {
  if (GoesAhead(frame.kind, frame.body)) {
    links_->SendAhead(self, peer, frame);
  } else {
    links_->Send(self, peer, frame);
  }
}

void NodeConnections::ToGcs(ProcessId from, FrameKind kind, const std::string& body) {
  const ProcessId self = from.node == 0 ? ProcessId{} : from;
  if (from.node != 0 && !gcs_up_ && IsSaidAgain(kind, body)) return;
  Pass(self, kGcs, {from, kGcs, Lane::kControl, kind, body});
  if (from.node == 0) links_->Flush();  // No loop runs yet that would.
}

void NodeConnections::FromGcs(ProcessId to, FrameKind kind, const std::string& body) {
  Pass(kGcs, to, {kGcs, to, Lane::kControl, kind, body});
  links_->Flush();
}

void NodeConnections::Send(ProcessId from, ProcessId to, Lane lane, FrameKind kind,
                           std::string_view head, std::string_view tail) {
  std::string whole;
  if (!tail.empty()) {
    whole.reserve(head.size() + tail.size());
    whole.append(head).append(tail);
    head = whole;
  }
  links_->Send(RayletOf(from.node), RayletOf(to.node), {from, to, lane, kind, head});
}

size_t NodeConnections::queued_bytes(NodeNumber node) const {
  return links_->queued_bytes(RayletOf(node));
}

void NodeConnections::PublishMetrics(metrics::Page& page) {
  using metrics::CounterId;
  const Links::Figures now = links_->figures();
  const auto grow = [&page](CounterId id, uint64_t value, uint64_t before) {
    metrics::Counter(page, id).Add(value - before);
  };
  const Links::Figures& old = published_;
  grow(CounterId::kLinkBytesOut, now.bytes_sent + now.served_bytes,
       old.bytes_sent + old.served_bytes);
  grow(CounterId::kLinkBytesIn, now.bytes_received + now.fetched_bytes,
       old.bytes_received + old.fetched_bytes);
  grow(CounterId::kLinkResent, now.resent_messages, old.resent_messages);
  grow(CounterId::kLinkReconnects, now.reconnects, old.reconnects);
  grow(CounterId::kLinkRefused, now.refused_handshakes, old.refused_handshakes);
  page.gauge(metrics::GaugeId::kLinkQueuedBytes)
      .store(static_cast<int64_t>(now.queued_bytes), std::memory_order_relaxed);
  page.gauge(metrics::GaugeId::kCertificatesExpire)
      .store(now.certificates_expire, std::memory_order_relaxed);
  published_ = now;
}

void NodeConnections::SetAddress(NodeNumber node, const std::string& address) {
  {
    const MutexLock lock(mutex_);
    if (dead_.contains(node)) return;  // Numbers are never used again.
  }
  links_->SetAddress(RayletOf(node), address);
}

void NodeConnections::AddSelf(ProcessId end) {
  links_->AddSelf(end);
  const MutexLock lock(mutex_);
  self_ = end;
}

void NodeConnections::OnNodeLink(NodeNumber node, bool up) {
  events_.on_node_link(node, up);
  const MutexLock lock(mutex_);
  if (up || dead_.contains(node)) {
    unheard_since_.erase(node);
  } else {
    unheard_since_.try_emplace(node, MonotonicNow());
  }
}

bool NodeConnections::ReportUnheard(
    Nanos limit,
    const std::function<void(ProcessId from, FrameKind kind, std::string body)>& to_gcs) {
  std::vector<NodeNumber> unheard;
  ProcessId self;
  {
    const MutexLock lock(mutex_);
    if (unheard_since_.empty()) return false;
    if (!gcs_up_) return true;  // It would pile up; whoever is unheard then is so still.
    self = self_;
    const Nanos now = MonotonicNow();
    for (const auto& [node, since] : unheard_since_) {
      if (now - since >= limit) unheard.push_back(node);
    }
  }
  for (const NodeNumber node : unheard) {
    proto::GcsRequest request;
    request.set_client(self.packed());
    request.mutable_unregister_node()->set_node(node);
    to_gcs(self, FrameKind::kGcsRequest, request.SerializeAsString());
  }
  return true;
}

void NodeConnections::Forget(NodeNumber node) {
  {
    const MutexLock lock(mutex_);
    dead_.insert(node);
    unheard_since_.erase(node);
  }
  if (hosts_gcs_) {  // The GCS still has a word for it: that it is dead and must end.
    links_->SetAddress(RayletOf(node), "");
  } else {
    links_->Forget(RayletOf(node));
  }
}

}  // namespace sheaf::cli
