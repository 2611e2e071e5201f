// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One request and what is answered to it. A handler gets both as values and may answer at once or
// later, from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sheaf::http {

using Pairs = std::vector<std::pair<std::string, std::string>>;

// The first value of `name` in `pairs`, or nothing.
std::optional<std::string_view> Find(const Pairs& pairs, std::string_view name);

// A file that goes with its last owner, unless somebody has renamed it by then.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string path) : path_(std::move(path)) {}
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

struct Request {
  std::string method{};  // "GET"; a HEAD reaches the handler of GET as "HEAD".
  std::string path{};    // As it came, without the query.
  Pairs query{};         // Decoded, in the order of the request.
  Pairs headers{};       // Names in lower case.
  Pairs captures{};      // What stands in the places of the route's {names}, decoded.
  std::string body{};    // Of a route with Body::kMemory.
  std::shared_ptr<const TemporaryFile> body_file{};  // Of a route with Body::kFile: holds the body.
  uint64_t body_bytes = 0;
  bool browser = false;  // A web page asks: secrets are left out of the answer.
  bool secure = false;   // It came by TLS.
  std::string peer{};    // The numeric address of who asks.

  std::string_view Header(std::string_view lower_case_name) const;
  std::string_view Capture(std::string_view name) const;
  std::optional<std::string_view> Query(std::string_view name) const { return Find(query, name); }
};

struct Response {
  int status = 200;
  std::string body{};
  std::string content_type = "application/json";
  Pairs headers{};
};

// `sentence` as plain text, with a line feed behind it.
Response PlainText(int status, std::string_view sentence);
// "Not Found" of 404.
std::string_view ReasonOf(int status);

// An answer without an end of its own: bytes of one long body, or messages of a WebSocket.
// Thread-safe. Its last handle closes it as failed, unless Close came before.
class Stream {
 public:
  virtual ~Stream() = default;
  // Sends `bytes` behind what was written before; over a WebSocket as one text message, in which
  // what is not UTF-8 is replaced, or as several of 64 KiB. False: the viewer has gone, or has not
  // yet taken what was sent (256 KiB); nothing was kept then.
  virtual bool Write(std::string bytes) = 0;
  // All that was written is sent, then the end. 1000 means that all has been said; any other code
  // (1011: the server could not go on) lets the viewer know that something is missing.
  virtual void Close(uint16_t code, std::string reason) = 0;
  virtual bool open() const = 0;
  // `changed` is called on the server's thread when there is room again after a Write that found
  // none, and when the viewer has gone. Replaces an earlier one.
  virtual void OnChange(std::function<void()> changed) = 0;
};

// How a handler answers; one of Send and Open, once: later ones count for nothing. A request whose
// last Reply goes unanswered is answered with 500. Thread-safe, copies answer the same request.
class Reply {
 public:
  // What the server's side of it does.
  class Exchange {
   public:
    virtual ~Exchange() = default;
    virtual void Send(Response response) = 0;
    virtual std::shared_ptr<Stream> Open(Response head) = 0;
  };
  explicit Reply(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  void Send(Response response) const { exchange_->Send(std::move(response)); }
  // Begins an answer that goes on. Of `head` a route with a WebSocket takes nothing, others all but
  // the body.
  std::shared_ptr<Stream> Open(Response head) const { return exchange_->Open(std::move(head)); }

 private:
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace sheaf::http
