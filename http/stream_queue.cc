// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/stream_queue.h"

#include <utility>

namespace sheaf::http {
namespace {

class Handle final : public Stream {
 public:
  explicit Handle(std::shared_ptr<StreamQueue> queue) : queue_(std::move(queue)) {}
  ~Handle() override { queue_->Close(1011, "the server could not go on"); }
  bool Write(std::string bytes) override { return queue_->Write(std::move(bytes)); }
  void Close(uint16_t code, std::string reason) override { queue_->Close(code, std::move(reason)); }
  bool open() const override { return queue_->open(); }
  void OnChange(std::function<void()> changed) override { queue_->OnChange(std::move(changed)); }

 private:
  const std::shared_ptr<StreamQueue> queue_;
};

}  // namespace

std::shared_ptr<Stream> StreamQueue::HandleOf(std::shared_ptr<StreamQueue> queue) {
  return std::make_shared<Handle>(std::move(queue));
}

bool StreamQueue::Write(std::string bytes) {
  {
    const MutexLock lock(mutex_);
    if (gone_ || end_.has_value()) return false;
    if (bytes.empty()) return true;
    if (bytes_ > 0 && bytes_ + bytes.size() > kMaxQueuedBytes) {
      refused_ = true;
      return false;
    }
    bytes_ += bytes.size();
    queue_.push_back(std::move(bytes));
  }
  wake_();
  return true;
}

void StreamQueue::Close(uint16_t code, std::string reason) {
  {
    const MutexLock lock(mutex_);
    if (gone_ || end_.has_value()) return;
    end_ = End{code, std::move(reason)};
    changed_ = nullptr;
  }
  wake_();
}

bool StreamQueue::open() const {
  const MutexLock lock(mutex_);
  return !gone_ && !end_.has_value();
}

void StreamQueue::OnChange(std::function<void()> changed) {
  const MutexLock lock(mutex_);
  std::swap(changed_, changed);
}

StreamQueue::Next StreamQueue::Take() {
  Next next;
  std::function<void()> changed;
  {
    const MutexLock lock(mutex_);
    if (!queue_.empty()) {
      next.bytes = std::move(queue_.front());
      queue_.pop_front();
      bytes_ -= next.bytes->size();
      if (refused_ && bytes_ <= kMaxQueuedBytes / 2) {
        refused_ = false;
        changed = changed_;
      }
    } else {
      next.end = end_;
    }
  }
  if (changed) changed();
  return next;
}

void StreamQueue::Abandon() {
  std::function<void()> changed;
  {
    const MutexLock lock(mutex_);
    if (gone_) return;
    gone_ = true;
    queue_.clear();
    std::swap(changed, changed_);
  }
  if (changed) changed();
}

}  // namespace sheaf::http
