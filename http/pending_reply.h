// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The way of an answer from its handler, on any thread, to the connection. Internal to http/.
#pragma once

#include <atomic>
#include <boost/asio/post.hpp>
#include <memory>
#include <utility>

#include "http/connection.h"

namespace sheaf::http {

// Target: has Deliver(Response) and BeginStream(Response, queue, sender), for the server's thread.
template <class Target>
class PendingReply final : public Reply::Exchange {
 public:
  PendingReply(std::shared_ptr<ServerState> state, std::weak_ptr<Target> connection)
      : state_(std::move(state)), connection_(std::move(connection)) {}
  ~PendingReply() override { Send(PlainText(500, "The server has lost this request.")); }

  void Send(Response response) override {
    if (answered_.exchange(true)) return;
    Post([connection = connection_, response = std::move(response)]() mutable {
      if (const auto there = connection.lock()) there->Deliver(std::move(response));
    });
  }

  std::shared_ptr<Stream> Open(Response head) override {
    // The connection that sends the stream: a WebSocket becomes another one.
    auto sender = std::make_shared<std::weak_ptr<Connection>>(connection_);
    auto queue = std::make_shared<StreamQueue>([state = state_, sender] {
      if (state->stopped) return;
      boost::asio::post(state->io, [sender] {
        if (const auto there = sender->lock()) there->Pump();
      });
    });
    if (answered_.exchange(true)) {
      queue->Abandon();
    } else {
      Post([connection = connection_, head = std::move(head), queue, sender]() mutable {
        const auto there = connection.lock();
        if (there == nullptr) return queue->Abandon();
        there->BeginStream(std::move(head), std::move(queue), *sender);
      });
    }
    return StreamQueue::HandleOf(std::move(queue));
  }

 private:
  template <class Work>
  void Post(Work work) {
    if (!state_->stopped) boost::asio::post(state_->io, std::move(work));
  }

  const std::shared_ptr<ServerState> state_;
  const std::weak_ptr<Target> connection_;
  std::atomic<bool> answered_ = false;
};

}  // namespace sheaf::http
