// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One end of links for the tests: real sockets on 127.0.0.1, and a memory of what arrived.
#pragma once

#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rpc/links.h"

namespace sheaf {

inline const std::string kTestToken(32, 'k');
inline constexpr Nanos kTestPatience = 30 * kSecond;

inline LinksOptions TestLinksOptions() {
  LinksOptions options;
  options.listen_address = "127.0.0.1:0";
  options.version = "1.0";
  options.credentials.token = kTestToken;
  options.ping_period = 100 * kMillisecond;
  options.silence_limit = 500 * kMillisecond;
  return options;
}

class TestNode {
 public:
  struct Event {
    ProcessId peer;
    bool up;
    absl::Status reason;
  };
  struct Arrived {
    ProcessId peer, from, to;
    Lane lane;
    FrameKind kind;
    std::string body;
  };

  explicit TestNode(std::vector<ProcessId> ends, LinksOptions options = TestLinksOptions()) {
    options.on_frames = [this](ProcessId peer, std::unique_ptr<LinkBatch> batch) {
      std::lock_guard lock(mutex_);
      batch->ForEach([&](const LinkFrame& frame) {
        aligned_ = aligned_ && reinterpret_cast<uintptr_t>(frame.body.data()) % 8 == 0;
        ++frames_;
        if (check_numbers_) {
          uint64_t number = 0;
          if (frame.body.size() >= sizeof number) {
            std::memcpy(&number, frame.body.data(), sizeof number);
          }
          if (number != expected_++) ++wrong_;
        } else {
          arrived_.push_back(
              {peer, frame.from, frame.to, frame.lane, frame.kind, std::string(frame.body)});
        }
      });
      changed_.notify_all();
    };
    options.on_link = [this](ProcessId peer, bool up, absl::Status reason) {
      std::lock_guard lock(mutex_);
      up_[peer] = up;
      events_.push_back({peer, up, std::move(reason)});
      changed_.notify_all();
    };
    if (!options.on_fetch) {
      options.on_fetch = [](ProcessId peer, std::string request, LinksOptions::Respond respond) {
        auto bytes = std::make_shared<std::string>(request + request);
        respond(
            Block{absl::StrCat("for ", peer.ToString()), {bytes->data(), bytes->size()}, bytes});
      };
    }
    auto started = Links::Start(std::move(options));
    REQUIRE(started.status().ToString() == "OK");
    links_ = std::move(*started);
    for (const ProcessId end : ends) links_->AddSelf(end);
    self_ = ends.empty() ? ProcessId{} : ends.front();
  }
  ~TestNode() { links_->Stop(); }

  Links& links() { return *links_; }
  std::string address() const { return links_->address(); }

  void Send(ProcessId peer, std::string_view body) {
    links_->Send(self_, peer, {self_, peer, Lane::kControl, FrameKind::kGcsRequest, body});
    links_->Flush();
  }
  // Bodies that are numbers, `first` and on; one Flush in `per_flush`.
  void SendNumbers(ProcessId peer, uint64_t first, uint64_t count, uint64_t per_flush,
                   size_t body_bytes = 16) {
    std::string body(body_bytes, 'x');
    for (uint64_t number = first; number < first + count; ++number) {
      std::memcpy(body.data(), &number, sizeof number);
      links_->Send(self_, peer, {self_, peer, Lane::kWork, FrameKind::kPushTask, body});
      if ((number + 1) % per_flush == 0) links_->Flush();
    }
    links_->Flush();
  }
  void CheckNumbers() { check_numbers_ = true; }

  template <class Condition>
  bool Await(Condition condition, Nanos patience = kTestPatience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::nanoseconds(patience), condition);
  }
  bool AwaitFrames(uint64_t count, Nanos patience = kTestPatience) {
    return Await([&] { return frames_ >= count; }, patience);
  }
  bool AwaitLink(ProcessId peer, bool up, Nanos patience = kTestPatience) {
    return Await([&] { return up_.contains(peer) && up_[peer] == up; }, patience);
  }
  bool AwaitReason(absl::StatusCode code, Nanos patience = kTestPatience) {
    return Await([&] { return HasReason(code); }, patience);
  }
  uint64_t frames() {
    std::lock_guard lock(mutex_);
    return frames_;
  }
  uint64_t wrong() {
    std::lock_guard lock(mutex_);
    return wrong_;
  }
  bool aligned() {
    std::lock_guard lock(mutex_);
    return aligned_;
  }
  std::vector<Arrived> arrived() {
    std::lock_guard lock(mutex_);
    return arrived_;
  }
  std::vector<Event> events() {
    std::lock_guard lock(mutex_);
    return events_;
  }
  absl::StatusOr<std::unique_ptr<ReceivedBlock>> Fetch(ProcessId peer, std::string request,
                                                       Nanos timeout = 20 * kSecond) {
    std::mutex mutex;
    std::condition_variable done;
    std::vector<absl::StatusOr<std::unique_ptr<ReceivedBlock>>> results;
    links_->Fetch(self_, peer, std::move(request), timeout, [&](auto result) {
      if (result.ok()) {
        const absl::Status kept = (*result)->Keep();
        if (!kept.ok()) result = kept;
      }
      std::lock_guard lock(mutex);
      results.push_back(std::move(result));
      done.notify_all();
    });
    std::unique_lock lock(mutex);
    done.wait(lock, [&] { return !results.empty(); });
    return std::move(results.front());
  }

 private:
  bool HasReason(absl::StatusCode code) {
    for (const Event& event : events_) {
      if (!event.up && event.reason.code() == code) return true;
    }
    return false;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Arrived> arrived_;
  std::vector<Event> events_;
  std::map<ProcessId, bool> up_;
  uint64_t frames_ = 0, expected_ = 0, wrong_ = 0;
  bool aligned_ = true;
  bool check_numbers_ = false;
  ProcessId self_;
  std::unique_ptr<Links> links_;
};

}  // namespace sheaf
