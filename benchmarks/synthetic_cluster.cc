// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A node whose cluster is made up: to tools it answers as one of so many nodes with so many calls
// does, over the socket and with the messages of a real one (shm/attach.h), so that the dashboard
// meets sizes that no machine here can hold. Who asks is trusted: it is a benchmark.
//
//   synthetic_cluster SESSION NODES TASKS     until its standard input ends
#include <filesystem>
#include <fstream>
#include <iostream>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/ids.h"
#include "base/message_limits.h"
#include "base/mutex.h"
#include "base/session_directory.h"
#include "base/unix_socket.h"
#include "base/version.h"
#include "proto/gcs.pb.h"
#include "proto/raylet.pb.h"
#include "shm/attach.h"
#include "shm/attach_client.h"
#include "telemetry/host_figures.h"
#include "telemetry/task_events.h"

namespace sheaf {
namespace {

using proto::StateAnswer;
using proto::StateQuery;

constexpr int64_t kUnit = 10'000;  // Of a resource, as it travels.
constexpr uint32_t kFunctions = 40;
constexpr uint32_t kRows = 10'000;  // Of a listing that names no limit.
constexpr int kBars = 20;           // New ones of a lane in each digest.
constexpr Nanos kForever = 3600 * kSecond;

std::string HexId(uint64_t number) {
  return absl::StrCat(absl::Hex(number, absl::kZeroPad16), absl::Hex(~number, absl::kZeroPad16));
}
std::string FunctionName(uint64_t number) {
  return absl::StrCat("work_of_kind_", number % kFunctions);
}
// A worker: each node has eight.
uint64_t WorkerOf(uint64_t number, uint32_t nodes) {
  return ProcessId{static_cast<NodeNumber>(1 + number % nodes),
                   static_cast<uint32_t>(2 + number / nodes % 8)}
      .packed();
}

class Cluster {
 public:
  Cluster(uint32_t nodes, uint64_t tasks) : nodes_(nodes), tasks_(tasks) {}

  StateAnswer Answer(const StateQuery& query) const {
    StateAnswer answer;
    switch (query.what()) {
      case StateQuery::DIGEST:
        for (uint32_t node = 1; node <= nodes_; ++node) Digest(query, node, *answer.add_digests());
        break;
      case StateQuery::NODES:
      case StateQuery::STATUS:
        for (uint32_t node = 1; node <= nodes_; ++node) Node(node, *answer.add_nodes());
        break;
      case StateQuery::TASKS:
        Tasks(query, answer);
        break;
      case StateQuery::FUNCTIONS:
        for (uint32_t i = 0; i < kFunctions; ++i) Function(i, *answer.add_functions());
        break;
      case StateQuery::SERIES:
        Series(query, answer);
        break;
      case StateQuery::KEY_VALUE:
        answer.set_key_value(Gcs());
        break;
      case StateQuery::WHY:
        answer.set_words("it waits for 1 CPU; all nodes are full");
        break;
      default:
        Rows(query.what(), answer);
    }
    return answer;
  }

 private:
  void Amounts(proto::Resources& resources, int64_t cpus) const {
    (*resources.mutable_amounts())["CPU"] = cpus * kUnit;
    (*resources.mutable_amounts())["memory"] = (int64_t{64} << 30) * kUnit;
  }

  void Node(uint32_t node, proto::NodeRow& row) const {
    row.set_node(node);
    row.set_address(absl::StrCat("10.0.", node / 256, ".", node % 256, ":6379"));
    row.set_state("ALIVE");
    row.set_host_name(absl::StrCat("host-", node));
    row.set_version(kSheafVersion.data());
    row.set_start_time_unix_s(UnixNow() / kSecond - 3600);
    Amounts(*row.mutable_total(), 64);
    Amounts(*row.mutable_available(), node % 64);
    (*row.mutable_labels())["zone"] = absl::StrCat("zone-", node % 3);
  }

  void Digest(const StateQuery& query, uint32_t node, proto::NodeDigest& digest) const {
    const auto seconds = static_cast<uint64_t>((MonotonicNow() - begin_) / kSecond);
    digest.set_node(node);
    digest.set_unix_ms(UnixNow() / kMillisecond);
    Amounts(*digest.mutable_total(), 64);
    Amounts(*digest.mutable_available(), static_cast<int64_t>((node + seconds) % 64));
    digest.mutable_store()->set_capacity_bytes(uint64_t{16} << 30);
    digest.mutable_store()->set_used_bytes((uint64_t{1} << 30) + node + seconds);
    digest.mutable_store()->set_objects(1000);
    (*digest.mutable_workers())["LEASED"] = 6;
    (*digest.mutable_workers())["ACTOR"] = 2;
    digest.set_processes(9);
    digest.set_waiting(tasks_ / nodes_);
    for (size_t i = 0; i < telemetry::kHostSeries; ++i) digest.add_host(Figure(node, i));
    digest.set_finished(1'000 * seconds + node);
    for (uint32_t i = 0; i < 16; ++i) {
      proto::DigestFunction& function = *digest.add_functions();
      function.mutable_row()->set_name(FunctionName(node + i));
      function.mutable_row()->set_type("NORMAL_TASK");
      function.mutable_row()->set_job(1);
      function.mutable_row()->set_finished(60 * seconds);
      function.set_per_second(60);
      function.set_busy(0.4);
      digest.add_names(FunctionName(node + i));
    }
    digest.set_base_unix_us(UnixNow() / kMicrosecond - 2'000'000);
    const uint32_t lanes = std::min<uint32_t>(query.lanes(), 8);
    for (uint32_t i = 0; i < lanes; ++i)
      Lane(WorkerOf(node - 1 + i * nodes_, nodes_), *digest.add_lanes());
    digest.set_lanes_left_out(8 - lanes);
    digest.mutable_next()->set_node(node);
    digest.mutable_next()->set_ended(1'000 * seconds);
    digest.mutable_next()->set_at_ns(MonotonicNow());
  }

  // As telemetry/call_lanes.h lays bars out.
  static void Lane(uint64_t process, proto::Lane& lane) {
    lane.set_process(process);
    lane.set_os_pid(1000);
    lane.set_busy(0.8F);
    std::string bars;
    for (uint32_t i = 0; i < kBars; ++i) {
      for (const uint32_t number : {i * 50'000, uint32_t{40'000}, uint32_t{0xff01'0000} + i % 16}) {
        for (int byte = 0; byte < 4; ++byte) bars.push_back(static_cast<char>(number >> 8 * byte));
      }
    }
    lane.set_bars(bars);
  }

  float Figure(uint32_t node, size_t series) const {
    return static_cast<float>((node * 7 + series * 13) % 100) / 100;
  }

  // A million of them wait. Nodes give the first that fit, and say that there are more.
  void Tasks(const StateQuery& query, StateAnswer& answer) const {
    const uint64_t limit = query.limit() == 0 ? kRows : query.limit();
    for (uint64_t i = 0; i < std::min(limit, tasks_); ++i) {
      proto::TaskRow& row = *answer.add_tasks();
      row.set_task_id(HexId(i));
      row.set_name(FunctionName(i));
      row.set_state("WAITING_FOR_LEASE");
      row.set_type("NORMAL_TASK");
      row.set_owner(WorkerOf(i, nodes_));
      row.set_job(1);
      row.set_words("it waits for 1 CPU; all nodes are full");
      row.set_created_unix_ms(UnixNow() / kMillisecond);
    }
    answer.set_truncated(limit < tasks_);
  }

  void Function(uint32_t number, proto::FunctionRow& row) const {
    row.set_name(FunctionName(number));
    row.set_type("NORMAL_TASK");
    row.set_job(1);
    row.set_finished(1'000'000);
    row.set_timed(1'000'000);
    row.set_run_ns(1'000'000'000'000);
    row.set_longest_ns(90'000'000);
    for (int i = 0; i < 28; ++i) row.add_run_time(i == 10 ? 1'000'000 : 0);
    row.set_waiting_for_place(tasks_ / kFunctions);
  }

  // Every two seconds for an hour, of each node that is asked, as far as an answer reaches.
  void Series(const StateQuery& query, StateAnswer& answer) const {
    const int64_t now = UnixNow() / kMillisecond;
    const int64_t from = std::max(query.from_unix_ms(), now - 3'600'000);
    size_t bytes = 0;
    const uint32_t first = query.node() == 0 ? 1 : query.node();
    for (uint32_t node = first; node <= (query.node() == 0 ? nodes_ : first); ++node) {
      for (const std::string& name : query.series()) {
        const auto series = telemetry::FindSeries(name);
        if (!series) continue;
        if (bytes > kMaxStateBytes) return answer.set_truncated(true);
        proto::SeriesRow& row = *answer.add_series();
        row.set_node(node);
        row.set_name(name);
        row.set_first_unix_ms(from);
        row.set_period_ms(2'000);
        for (int64_t at = from; at < now; at += 2'000) {
          row.add_values(
              Figure(node + static_cast<uint32_t>(at / 2'000), static_cast<size_t>(*series)));
        }
        bytes += row.ByteSizeLong();
      }
    }
  }

  // Nothing was submitted.
  static std::string Gcs() {
    proto::GcsReply reply;
    reply.mutable_submissions();
    return reply.SerializeAsString();
  }

  void Rows(StateQuery::What what, StateAnswer& answer) const {
    for (uint64_t i = 0; i < kRows; ++i) {
      if (what == StateQuery::ACTORS) {
        proto::ActorRow& row = *answer.add_actors();
        row.set_actor_id(HexId(i));
        row.set_class_name(FunctionName(i));
        row.set_name(absl::StrCat("actor-", i));
        row.set_name_space("0123456789abcdef");
        row.set_state("ALIVE");
        row.set_process(WorkerOf(i, nodes_));
        row.set_job(1);
      } else if (what == StateQuery::OBJECTS) {
        proto::ObjectRow& row = *answer.add_objects();
        row.set_object_id(HexId(i));
        row.set_size_bytes(1 << 20);
        row.set_where("store");
        row.set_owner(WorkerOf(i, nodes_));
        row.set_local_refs(1);
      } else if (what == StateQuery::WORKERS) {
        proto::WorkerRow& row = *answer.add_workers();
        row.set_process(WorkerOf(i, nodes_));
        row.set_os_pid(1000);
        row.set_state("LEASED");
        row.set_job(1);
        row.set_running(FunctionName(i));
      }
    }
    answer.set_truncated(answer.actors_size() + answer.objects_size() > 0);
    if (what == StateQuery::DEMAND) {
      proto::DemandRow& row = *answer.add_demand();
      Amounts(*row.mutable_resources(), 1);
      row.set_count(tasks_);
      row.set_words("all nodes are full");
    }
    if (what == StateQuery::JOBS) {
      proto::JobRow& row = *answer.add_jobs();
      row.set_job(1);
      row.set_state("RUNNING");
      row.set_entrypoint("python work.py");
    }
  }

  const uint32_t nodes_;
  const uint64_t tasks_;
  const Nanos begin_ = MonotonicNow() - 60 * kSecond;
};

// Of one tool, as long as it asks.
void Serve(const Cluster& cluster, const UnixSocket& socket) {
  if (!socket.Receive(kForever).ok()) return;
  AttachWelcome welcome{};
  welcome.magic = kAttachMagic;
  welcome.result = static_cast<uint32_t>(AttachResult::kWelcome);
  welcome.process = ProcessId{1, 1}.packed();
  StoreText(welcome.version, kSheafVersion);
  const std::string_view bytes(reinterpret_cast<const char*>(&welcome), sizeof(welcome));
  if (!socket.Send(bytes, {}, kForever).ok()) return;
  while (true) {
    const absl::StatusOr<std::string> question = ReceiveInParts(socket, kMaxToolQuestion, kForever);
    StateQuery query;
    if (!question.ok() || !query.ParseFromString(*question)) return;
    if (!SendInParts(socket, cluster.Answer(query).SerializeAsString(), kForever).ok()) return;
  }
}

int Run(const std::string& session, const Cluster& cluster) {
  const absl::StatusOr<UnixListener> listener =
      UnixListener::Listen(absl::StrCat(session, "/", kRayletSocketName));
  if (!listener.ok()) {
    std::cerr << listener.status() << "\n";
    return 1;
  }
  std::ofstream(session + "/node") << 1 << "\n";
  ThreadExecutor door("door");
  door.Post([&] {
    for (int guests = 0;; ++guests) {
      absl::StatusOr<UnixSocket> socket = listener->Accept(kForever);
      if (!socket.ok()) return;
      auto* const room = new ThreadExecutor("guest");  // Until the process ends, which is soon.
      room->Post([&cluster, socket = std::make_shared<UnixSocket>(*std::move(socket))] {
        Serve(cluster, *socket);
      });
    }
  });
  std::cout << "ready" << std::endl;
  std::cin.get();
  std::_Exit(0);  // Nobody's state is here; threads wait for guests.
}

}  // namespace
}  // namespace sheaf

int main(int argc, char** argv) {
  uint32_t nodes = 0;
  uint64_t tasks = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[2], &nodes) || nodes == 0 ||
      !absl::SimpleAtoi(argv[3], &tasks)) {
    std::cerr << "usage: synthetic_cluster SESSION NODES TASKS\n";
    return 2;
  }
  return sheaf::Run(argv[1], sheaf::Cluster(nodes, tasks));
}
