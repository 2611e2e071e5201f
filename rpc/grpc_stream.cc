// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/grpc_stream.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <utility>

#include "base/mutex.h"

namespace sheaf {
namespace {

class DialledStream final : public LinkStream,
                            public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                            public std::enable_shared_from_this<DialledStream> {
 public:
  DialledStream(std::shared_ptr<grpc::Channel> channel, std::string method)
      : channel_(std::move(channel)), stub_(channel_), method_(std::move(method)) {}

  void Begin(std::shared_ptr<Events> events) override {
    self_ = shared_from_this();
    events_ = std::move(events);
    stub_.PrepareBidiStreamingCall(&context_, method_, {}, this);
    AddHold();  // Writes come from any thread; given back by Close, or by the write it waits for.
    StartRead(&incoming_);
    StartCall();
  }

  void Write(const grpc::ByteBuffer& message) override {
    {
      const MutexLock lock(mutex_);
      if (closing_) return;
      writing_ = true;
    }
    outgoing_ = message;
    StartWrite(&outgoing_);
  }

  void Close(const grpc::Status&) override {
    {
      const MutexLock lock(mutex_);
      if (std::exchange(closing_, true)) return;
      context_.TryCancel();
      if (writing_) return;
    }
    RemoveHold();
  }

  std::shared_ptr<const grpc::AuthContext> peer() const override { return context_.auth_context(); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Close({});
      return;
    }
    events_->OnMessage(incoming_);
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    outgoing_.Clear();
    bool over;
    {
      const MutexLock lock(mutex_);
      writing_ = false;
      over = closing_;
    }
    if (over) {
      RemoveHold();
    } else if (!ok) {
      Close({});
    } else {
      events_->OnWritten();
    }
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<LinkStream> self = std::move(self_);
    const std::shared_ptr<Events> events = std::move(events_);
    events->OnClosed(status);
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  const std::string method_;
  grpc::ClientContext context_;
  std::shared_ptr<LinkStream> self_;  // Until OnDone.
  std::shared_ptr<Events> events_;
  grpc::ByteBuffer incoming_, outgoing_;
  Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
};

class AcceptedStream final : public LinkStream,
                             public grpc::ServerGenericBidiReactor,
                             public std::enable_shared_from_this<AcceptedStream> {
 public:
  explicit AcceptedStream(grpc::GenericCallbackServerContext* context) : context_(context) {}

  void Begin(std::shared_ptr<Events> events) override {
    self_ = shared_from_this();
    events_ = std::move(events);
    StartRead(&incoming_);
  }

  void Write(const grpc::ByteBuffer& message) override {
    {
      const MutexLock lock(mutex_);
      if (closing_) return;
      writing_ = true;
    }
    outgoing_ = message;
    StartWrite(&outgoing_);
  }

  void Close(const grpc::Status& status) override {
    {
      const MutexLock lock(mutex_);
      if (std::exchange(closing_, true)) return;
      if (writing_) {
        // Finish would wait for a write that may never end. Under the lock, since the context lives
        // until Finish, which OnWriteDone calls.
        context_->TryCancel();
        return;
      }
    }
    Finish(status);
  }

  std::shared_ptr<const grpc::AuthContext> peer() const override {
    return context_->auth_context();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Close(grpc::Status::OK);
      return;
    }
    events_->OnMessage(incoming_);
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    outgoing_.Clear();
    bool over;
    {
      const MutexLock lock(mutex_);
      writing_ = false;
      over = closing_;
    }
    if (over) {
      Finish(grpc::Status::CANCELLED);
    } else if (!ok) {
      Close(grpc::Status::CANCELLED);
    } else {
      events_->OnWritten();
    }
  }

  void OnCancel() override { Close(grpc::Status::CANCELLED); }

  void OnDone() override {
    const std::shared_ptr<LinkStream> self = std::move(self_);
    const std::shared_ptr<Events> events = std::move(events_);
    events->OnClosed(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the other end closed it"));
  }

 private:
  grpc::GenericCallbackServerContext* const context_;
  std::shared_ptr<LinkStream> self_;  // Until OnDone.
  std::shared_ptr<Events> events_;
  grpc::ByteBuffer incoming_, outgoing_;
  Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::shared_ptr<LinkStream> LinkStream::Dial(std::shared_ptr<grpc::Channel> channel,
                                             const std::string& method) {
  return std::make_shared<DialledStream>(std::move(channel), method);
}

std::shared_ptr<LinkStream> LinkStream::Accept(grpc::GenericCallbackServerContext* context,
                                               grpc::ServerGenericBidiReactor** reactor) {
  auto stream = std::make_shared<AcceptedStream>(context);
  *reactor = stream.get();
  return stream;
}

}  // namespace sheaf
