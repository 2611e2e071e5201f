// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/logs/log_follower.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace sheaf::dashboard {
namespace {

constexpr Nanos kPeriod = 200 * kMillisecond;
constexpr uint16_t kAllSaid = 1000;
constexpr uint16_t kCannotGoOn = 1011;
constexpr size_t kMostViewers = 48;

}  // namespace

class LogFollower::Viewer : public std::enable_shared_from_this<Viewer> {
 public:
  Viewer(LogFollower& follower, std::shared_ptr<http::Stream> stream, TailedLog log,
         std::string last)
      : follower_(follower),
        stream_(std::move(stream)),
        tail_(follower.ask_, std::move(log)),
        last_(std::move(last)),
        thread_({"sheaf-follow", kPeriod, [this] { Step(); }}) {}
  ~Viewer() {
    stopping_ = true;
    thread_.Stop();
  }

  void Begin() {
    stream_->OnChange([weak = weak_from_this()] {
      if (const auto viewer = weak.lock()) viewer->thread_.Post([v = viewer.get()] { v->Step(); });
    });
    thread_.Post([this] { Step(); });
  }

 private:
  // What it cannot, for want of memory for one, ends this viewer's answer alone.
  void Step() {
    try {
      Send();
    } catch (const std::exception& failure) {
      std::string().swap(unsent_);
      stream_->Close(kCannotGoOn, "");
      GoOff();
      Log(LogLevel::kError, "dashboard: a log that is followed: ", failure.what());
    }
  }

  void Send() {
    while (!over_ && !stopping_ && stream_->open()) {
      if (!unsent_.empty() && !stream_->Write(unsent_)) return;  // OnChange says when.
      unsent_.clear();
      if (end_ != LogTail::End::kNone) {
        const bool all = end_ == LogTail::End::kAll;
        stream_->Close(all ? kAllSaid : kCannotGoOn, all ? "" : "the log does not go on");
        break;
      }
      LogTail::Step step = tail_.Next();
      unsent_ = std::move(step.text);
      end_ = step.end;
      if (end_ != LogTail::End::kNone) unsent_ += last_;
      if (unsent_.empty() && end_ == LogTail::End::kNone && !step.more) return;
    }
    GoOff();
  }
  void GoOff() {
    if (!stopping_ && !std::exchange(over_, true)) follower_.OnOver(this);
  }

  LogFollower& follower_;
  const std::shared_ptr<http::Stream> stream_;
  LogTail tail_;
  const std::string last_;
  std::string unsent_;
  LogTail::End end_ = LogTail::End::kNone;
  bool over_ = false;
  std::atomic<bool> stopping_ = false;
  ThreadExecutor thread_;  // Last: it uses the others.
};

LogFollower::~LogFollower() {
  reaper_.Stop();
  const MutexLock lock(mutex_);
  viewers_.clear();
}

std::optional<http::Response> LogFollower::Refusal() {
  const MutexLock lock(mutex_);
  if (viewers_.size() < kMostViewers) return std::nullopt;
  return http::PlainText(429,
                         absl::StrCat(viewers_.size(),
                                      " logs are read or followed here already, as many as may "
                                      "be at a time: stop following one, or try again."));
}

void LogFollower::Add(std::shared_ptr<http::Stream> stream, TailedLog log, std::string last) {
  const auto viewer =
      std::make_shared<Viewer>(*this, std::move(stream), std::move(log), std::move(last));
  {
    const MutexLock lock(mutex_);
    viewers_.push_back(viewer);
  }
  viewer->Begin();
}

void LogFollower::OnOver(const Viewer* viewer) {
  reaper_.Post([this, viewer] {
    std::shared_ptr<Viewer> over;  // It ends without the lock.
    const MutexLock lock(mutex_);
    const auto found = std::find_if(viewers_.begin(), viewers_.end(),
                                    [viewer](const auto& one) { return one.get() == viewer; });
    if (found == viewers_.end()) return;
    over = std::move(*found);
    viewers_.erase(found);
  });
}

}  // namespace sheaf::dashboard
