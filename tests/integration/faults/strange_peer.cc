// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A node as a later version might send it, for fault row 36: it joins over an authenticated link,
// and whatever it says holds fields that nobody knows. It sends requests and frames of kinds that
// nobody knows, too, asks its peers things that they do know, and says as JSON what came of it. Its
// heart beats until its input ends; then it leaves the cluster.
//
//   strange_peer LISTEN TOKEN_FILE HEAD PEER_NODE PEER_ADDRESS [VERSION]
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error_kind.h"
#include "base/version.h"
#include "proto/gcs.pb.h"
#include "rpc/links.h"
#include "shm/attach.h"

namespace sheaf {
namespace {

constexpr Nanos kPatience = 30 * kSecond;
constexpr uint32_t kUnknownFields = 1900;  // Numbers that no message declares.
constexpr int kUnknownFrames = 200;
constexpr uint16_t kUnknownKinds[] = {20, 49, 110, 127, 160, 191, 200, 0x7fff, 0xffff};

void AppendVarint(std::string* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

// One field of each wire type.
std::string UnknownFields() {
  std::string out;
  AppendVarint(&out, uint64_t{kUnknownFields} << 3);
  AppendVarint(&out, ~uint64_t{0});
  AppendVarint(&out, uint64_t{kUnknownFields + 1} << 3 | 2);
  AppendVarint(&out, 5);
  out.append("later");
  AppendVarint(&out, uint64_t{kUnknownFields + 2} << 3 | 1);
  out.append(8, '\x7f');
  AppendVarint(&out, uint64_t{kUnknownFields + 3} << 3 | 5);
  out.append(4, '\x7f');
  return out;
}

// `message`, with fields that nobody knows inside it.
template <class Message>
void MakeStrange(Message* message) {
  const std::string more = message->SerializeAsString() + UnknownFields();
  if (!message->ParseFromString(more)) std::abort();
}

[[noreturn]] void Give(const std::string& words) {
  std::fprintf(stderr, "strange_peer: %s\n", words.c_str());
  std::fflush(stderr);
  std::_Exit(1);
}

class StrangePeer {
 public:
  StrangePeer(const std::string& listen, const std::string& token_file, const std::string& head,
              const std::string& version) {
    LinksOptions options;
    options.listen_address = listen;
    options.version = version;
    absl::StatusOr<std::string> token = LoadToken(token_file);
    if (!token.ok()) Give(std::string(token.status().message()));
    options.credentials.token = *token;
    options.on_frames = [this](ProcessId, std::unique_ptr<LinkBatch> batch) {
      batch->ForEach([this](const LinkFrame& frame) { OnFrame(frame); });
    };
    options.on_link = [](ProcessId peer, bool up, const absl::Status& reason) {
      std::fprintf(stderr, "strange_peer: the link to %s is %s %s\n", peer.ToString().c_str(),
                   up ? "up" : "down:", std::string(reason.message()).c_str());
      if (absl::IsFailedPrecondition(reason)) Give(std::string(reason.message()));
    };
    options.on_fetch = [](ProcessId, const std::string&, const LinksOptions::Respond& respond) {
      respond(absl::NotFoundError("a strange node has no objects"));
    };
    absl::StatusOr<std::unique_ptr<Links>> started = Links::Start(std::move(options));
    if (!started.ok()) Give(std::string(started.status().message()));
    links_ = *std::move(started);
    links_->SetAddress(kGcs, head);
  }
  ~StrangePeer() { links_->Stop(); }

  void Register() {
    proto::GcsRequest request;
    const ProcessId guest{0, 1};
    request.set_client(guest.packed());
    request.set_sequence(1);
    proto::RegisterNode& body = *request.mutable_register_node();
    body.set_nonce(absl::StrCat("strange ", 10'000'000 + getpid()));
    body.set_version(std::string(kSheafVersion));
    body.set_address(links_->address());
    body.set_host_name("later");
    MakeStrange(&body);
    const proto::GcsReply reply = Ask(ProcessId{}, request);
    if (reply.error() != 0) Give(reply.message());
    self_ = RayletOf(reply.node_registered().node());
    links_->AddSelf(self_);
  }

  // The answer to a request in the node's own name; `strange` is put behind its fields.
  proto::GcsReply AskAsNode(proto::GcsRequest request, const std::string& strange) {
    request.set_client(self_.packed());
    request.set_sequence(++sequence_);
    MakeStrange(&request);
    return Ask(self_, request, strange);
  }
  void Beat() {
    proto::GcsRequest request;
    request.set_client(self_.packed());
    request.mutable_heartbeat()->set_number(++beats_);
    MakeStrange(request.mutable_heartbeat());
    MakeStrange(&request);
    Send(kGcs, FrameKind::kGcsRequest, request.SerializeAsString());
  }
  void Send(ProcessId to, FrameKind kind, const std::string& body) {
    const ProcessId end = to == kGcs ? kGcs : RayletOf(to.node);
    links_->Send(self_, end, {self_, to, Lane::kControl, kind, body});
    links_->Flush();
  }
  // What the raylet of another node says to a question that it knows, or does not.
  bool AskPeer(NodeNumber node, int what, proto::StateAnswer* answer) {
    proto::StateQuery query;
    query.set_request(++queries_);
    query.set_what(static_cast<proto::StateQuery::What>(what));
    query.set_this_node(true);
    MakeStrange(&query);
    Send(RayletOf(node), FrameKind::kStateQuery, query.SerializeAsString());
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, std::chrono::nanoseconds(kPatience),
                                        [&] { return answer_.request() == queries_; });
    *answer = answer_;
    return came;
  }
  Links& links() { return *links_; }
  ProcessId self() const { return self_; }
  uint64_t beats_answered() {
    const std::lock_guard lock(mutex_);
    return beats_answered_;
  }

 private:
  proto::GcsReply Ask(ProcessId as, const proto::GcsRequest& request,
                      const std::string& strange = "") {
    const std::string body = request.SerializeAsString() + strange;
    links_->Send(as, kGcs, {as, kGcs, Lane::kControl, FrameKind::kGcsRequest, body});
    links_->Flush();
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::nanoseconds(kPatience),
                           [&] { return reply_.sequence() == request.sequence(); }))
      Give(absl::StrCat("the GCS did not answer request ", request.sequence()));
    return std::exchange(reply_, {});
  }
  void OnFrame(const LinkFrame& frame) {
    const std::lock_guard lock(mutex_);
    const auto size = static_cast<int>(frame.body.size());
    if (frame.kind == FrameKind::kGcsReply) {
      proto::GcsReply reply;
      if (!reply.ParseFromArray(frame.body.data(), size)) return;
      if (reply.has_heartbeat()) {
        beats_answered_ += reply.heartbeat().fenced() ? 0 : 1;
      } else if (reply.sequence() != 0) {
        reply_ = std::move(reply);
      }
    } else if (frame.kind == FrameKind::kStateAnswer) {
      answer_.ParseFromArray(frame.body.data(), size);
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<Links> links_;
  ProcessId self_;
  uint64_t sequence_ = 1, queries_ = 0, beats_ = 0, beats_answered_ = 0;
  proto::GcsReply reply_;
  proto::StateAnswer answer_;
};

int Run(int argc, char** argv) {
  if (argc < 6) Give("usage: strange_peer LISTEN TOKEN_FILE HEAD PEER_NODE PEER_ADDRESS [VERSION]");
  const auto peer_node = static_cast<NodeNumber>(std::atoi(argv[4]));
  StrangePeer peer(argv[1], argv[2], argv[3], argc > 6 ? argv[6] : std::string(kSheafVersion));
  peer.Register();
  peer.Beat();
  peer.links().SetAddress(RayletOf(peer_node), argv[5]);

  // A method that nobody knows: the body is a field that the oneof does not have.
  std::string method;
  AppendVarint(&method, uint64_t{150} << 3 | 2);
  AppendVarint(&method, 0);
  const proto::GcsReply refused = peer.AskAsNode({}, method);
  proto::GcsRequest describe;
  describe.mutable_describe_cluster();
  const proto::GcsReply known = peer.AskAsNode(std::move(describe), "");

  // Frames that nobody knows, for the GCS, the raylet and whatever processes that node has.
  for (int i = 0; i < kUnknownFrames; ++i) {
    for (const uint16_t kind : kUnknownKinds) {
      const ProcessId to =
          i % 2 == 0 ? RayletOf(peer_node) : ProcessId{peer_node, static_cast<uint32_t>(1 + i / 2)};
      peer.Send(to, static_cast<FrameKind>(kind), UnknownFields());
      if (i < 5) peer.Send(kGcs, static_cast<FrameKind>(kind), UnknownFields());
    }
  }
  peer.Beat();
  proto::StateAnswer workers, strange;
  const bool answered = peer.AskPeer(peer_node, proto::StateQuery::WORKERS, &workers);
  const bool strange_answered = peer.AskPeer(peer_node, 77, &strange);
  std::printf(
      "{\"node\": %u, \"unknown_method\": %u, \"words\": \"%s\", \"known\": %u, \"workers\": %d, "
      "\"unknown_question\": %d}\n",
      peer.self().node, refused.error(), refused.message().c_str(), known.error(),
      answered ? workers.workers_size() : -1, strange_answered);
  std::fflush(stdout);

  std::thread heart([&] {
    for (int i = 0; i < 600; ++i) {
      peer.Beat();
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  });
  heart.detach();
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) continue;
  proto::GcsRequest leave;
  MakeStrange(leave.mutable_unregister_node());
  const proto::GcsReply left = peer.AskAsNode(std::move(leave), "");
  std::printf("{\"left\": %u, \"beats\": %lu}\n", left.error(), peer.beats_answered());
  std::fflush(stdout);
  std::_Exit(0);
}

}  // namespace
}  // namespace sheaf

int main(int argc, char** argv) { return sheaf::Run(argc, argv); }
