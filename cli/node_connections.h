// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The node's connections to the rest of its cluster: frames of the raylet and of the GCS, if it
// runs here, over one Links (rpc/links.h). Any thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/mutex.h"
#include "cli/start.h"
#include "metrics/page.h"
#include "raylet/cluster/node_links.h"
#include "rpc/links.h"
#include "rpc/security/certificate_watch.h"

namespace sheaf::cli {

// What comes in. Called on threads of the links.
struct ConnectionEvents {
  // Frames between raylets and processes.
  std::function<void(std::shared_ptr<LinkBatch> batch)> on_frames;
  // The link to another node is up, or down.
  std::function<void(NodeNumber node, bool up)> on_node_link;
  // The link to the GCS is up, or down; `term` is that of the GCS at its other end.
  std::function<void(bool up, uint64_t term)> on_gcs_link;
  // To the GCS, of the raylet `from` ({0, k}: one without a number).
  std::function<void(ProcessId from, FrameKind kind, std::string body)> to_gcs;
  // The GCS refuses this node: wrong token, certificate or version.
  std::function<void(absl::Status why)> on_refused;
  // Of a node that is not the GCS's: that cannot be reached now; empty: it can.
  std::function<void(std::string why)> on_unreachable;
  // The term of the GCS here is over: the cluster follows another one.
  std::function<void(absl::Status why)> on_deposed;
  // The raylet `reader` asks for a piece of an object.
  std::function<void(ProcessId reader, std::string request, LinksOptions::Respond respond)>
      on_fetch;
  // From the GCS, for this node's raylet or one of its processes.
  std::function<void(ProcessId to, FrameKind kind, std::string body)> from_gcs;
};

class NodeConnections final : public NodeLinks {
 public:
  // Listens as `flags` say (not at all if `listen` is false) and knows the GCS by flags.join;
  // `own_host` is this machine's address on the way to it, which others dial where it listens on
  // all. Errors: of Links::Start, of token and certificate files.
  static absl::StatusOr<std::unique_ptr<NodeConnections>> Start(const NodeFlags& flags,
                                                                const Settings& settings,
                                                                bool listen,
                                                                const std::string& own_host,
                                                                ConnectionEvents events);

  const std::string& address() const { return address_; }  // Empty: nobody can dial this node.
  // This process is this raylet.
  void AddSelf(ProcessId end);
  // And the GCS, in this term. Again, in a later term, when the GCS was started anew.
  void HostGcs(const GcsTerm& term) {
    links_->SetTerm(term);
    if (!std::exchange(gcs_added_, true)) links_->AddSelf(kGcs);
  }
  // Tells the GCS, through `to_gcs`, of the nodes that are not heard any more for `limit`, though
  // nobody declared them dead: it ends one of the two, as what they ask of each other waits. Any
  // thread, about once a second; false: all that this node has to do with are heard.
  bool ReportUnheard(
      Nanos limit,
      const std::function<void(ProcessId from, FrameKind kind, std::string body)>& to_gcs);
  // A frame of the raylet for the GCS elsewhere; `from` is {0, k} while it has no number. While the
  // link to the GCS is down, what the sender says again anyhow is dropped.
  void ToGcs(ProcessId from, FrameKind kind, const std::string& body);
  // A frame of the GCS for the raylet `to` elsewhere.
  void FromGcs(ProcessId to, FrameKind kind, const std::string& body);
  void Flush() { links_->Flush(); }
  void Stop() {
    certificate_watch_ = nullptr;
    links_->Stop();
  }
  Links& links() { return *links_; }
  // Brings the counters of links up to date. One thread at a time.
  void PublishMetrics(metrics::Page& page);

  // NodeLinks, of the raylet.
  void Send(ProcessId from, ProcessId to, Lane lane, FrameKind kind, std::string_view head,
            std::string_view tail) override;
  size_t queued_bytes(NodeNumber node) const override;
  void SetAddress(NodeNumber node, const std::string& address) override;
  void Forget(NodeNumber node) override;

 private:
  explicit NodeConnections(ConnectionEvents events) : events_(std::move(events)) {}
  void OnFrames(ProcessId peer, std::unique_ptr<LinkBatch> batch);
  void OnNodeLink(NodeNumber node, bool up);
  void OnGcsLink(bool up);
  void Pass(ProcessId self, ProcessId peer, const LinkFrame& frame);

  const ConnectionEvents events_;
  std::string address_;
  bool hosts_gcs_ = false;
  bool gcs_added_ = false;           // Of HostGcs, one thread at a time.
  std::atomic<bool> gcs_up_ = true;  // Its link, where it is elsewhere.
  Mutex mutex_;
  ProcessId self_ ABSL_GUARDED_BY(mutex_);
  std::map<NodeNumber, Nanos> unheard_since_ ABSL_GUARDED_BY(mutex_);  // Whose links are down.
  std::set<NodeNumber> dead_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Links> links_;
  std::unique_ptr<CertificateWatch> certificate_watch_;  // Null: no TLS. Uses the links.
  Links::Figures published_;
};

}  // namespace sheaf::cli
