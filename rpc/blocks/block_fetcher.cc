// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/blocks/block_fetcher.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/status_macros.h"
#include "base/text/same_secret.h"
#include "rpc/blocks/block_wire.h"
#include "rpc/listen_address.h"

namespace sheaf {
namespace {

constexpr size_t kPiece = 256 * 1024;  // Its checksum is made while it is in the processor's cache.
constexpr uint64_t kMostSkipped = 8 << 20;  // More than a chunk of an object.
// What is left of an answer that nobody wants is read while it comes that quickly; a new connection
// is had sooner than the rest of a slow one.
constexpr Nanos kSkipTime = 500 * kMillisecond;

// The bytes of an answer that are still in the socket, and their checksum.
struct Unread {
  BlockSocket* socket;  // Null: they are to be had no more.
  std::atomic<Nanos>* moved_at;
  Nanos deadline;
  uint64_t left;
  size_t moved = 0;  // Since the deadline was set.

  void Came(size_t bytes) {
    left -= bytes;
    moved += bytes;
    if (moved < BlockSocket::kProgressBytes) return;
    const Nanos now = *moved_at = MonotonicNow();
    deadline = std::max(deadline, now + BlockFetcher::kPatience);
    moved = 0;
  }
};

class SocketBlock final : public ReceivedBlock {
 public:
  SocketBlock(std::string head, uint64_t size, std::shared_ptr<Unread> unread)
      : head_(std::move(head)), size_(size), unread_(std::move(unread)) {}
  const std::string& head() const override { return head_; }
  uint64_t size() const override { return size_; }

  absl::Status CopyTo(std::span<char> to) override {
    if (to.size() != size_) {
      return absl::InvalidArgumentError(
          absl::StrCat("room for ", to.size(), " bytes, and a block of ", size_));
    }
    if (size_ == 0) return absl::OkStatus();
    if (kept_ != nullptr) {
      std::memcpy(to.data(), kept_.get(), size_);
      return absl::OkStatus();
    }
    if (unread_->socket == nullptr || unread_->left != size_ + sizeof(BlockCrc))
      return absl::UnavailableError("a block that was not kept is gone");
    BlockCrc crc = 0;
    for (uint64_t at = 0; at < size_; arrived_ = at) {
      SHEAF_ASSIGN_OR_RETURN(
          const size_t got,
          unread_->socket->ReadSome(to.data() + at, std::min<uint64_t>(size_ - at, kPiece),
                                    unread_->deadline));
      crc = Crc32c({to.data() + at, got}, crc);
      at += got;
      unread_->Came(got);
    }
    BlockCrc sent = 0;
    SHEAF_RETURN_IF_ERROR(unread_->socket->ReadInto(&sent, unread_->deadline));
    unread_->left = 0;
    if (crc == sent) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("a block of ", size_, " bytes has checksum ", crc,
                                            ", and was sent with ", sent));
  }

  absl::Status Keep() override {
    if (kept_ != nullptr) return absl::OkStatus();
    std::unique_ptr<char[]> bytes(new char[size_]);  // Pages that were not written to cost nothing.
    SHEAF_RETURN_IF_ERROR(CopyTo({bytes.get(), size_}));
    kept_ = std::move(bytes);
    is_kept_ = true;
    return absl::OkStatus();
  }

  void Interrupt() override {
    if (!is_kept_ && unread_->socket != nullptr) unread_->socket->Shutdown();
  }
  uint64_t arrived() const override { return arrived_; }

 private:
  const std::string head_;
  const uint64_t size_;
  const std::shared_ptr<Unread> unread_;
  std::unique_ptr<char[]> kept_;
  std::atomic<bool> is_kept_{false};  // So that others than its one thread may know.
  std::atomic<uint64_t> arrived_{0};
};

}  // namespace

// A thread's own.
class BlockFetcher::Connection {
 public:
  explicit Connection(BlockFetcher& fetcher) : fetcher_(fetcher) {}
  ~Connection() { Drop(); }

  void Serve(std::vector<Question> questions) {
    if (socket_ != nullptr && !socket_->IsQuiet()) Drop();  // The other end had no more patience.
    const Nanos now = MonotonicNow();
    for (Question& question : questions) {
      question.deadline = fetcher_.EndOf(question);
      if (now < question.deadline) continue;
      question.done(absl::DeadlineExceededError("a fetch waited too long for a connection"));
      question.done = nullptr;
    }
    std::erase_if(questions, [](const Question& question) { return question.done == nullptr; });
    if (questions.empty()) return;
    absl::Status status = socket_ == nullptr ? Open(questions.front()) : absl::OkStatus();
    if (status.ok()) status = Ask(questions);
    const bool asked = status.ok();
    turn_until_ = 0;
    for (Question& question : questions) {
      if (status.ok() && socket_ == nullptr)
        status = absl::UnavailableError("the connection for blocks went with another answer");
      const bool others_fault = asked && !status.ok();
      if (status.ok()) status = TakeAnswer(question);
      if (question.done == nullptr || (others_fault && fetcher_.AskAgain(question))) continue;
      question.done(AsFetchFails(status));
    }
    if (!status.ok()) Drop();
  }

 private:
  // The ticket's link may have been replaced while the question was on its way.
  static absl::Status AsFetchFails(const absl::Status& status) {
    return absl::IsUnauthenticated(status) ? absl::UnavailableError(status.message()) : status;
  }

  absl::Status Open(const Question& question) {
    const Options& options = fetcher_.options_;
    socket_ = std::make_unique<BlockSocket>();
    {
      const MutexLock lock(fetcher_.mutex_);
      if (fetcher_.closed_) return absl::UnavailableError(fetcher_.why_);
      fetcher_.sockets_.insert(socket_.get());
    }
    const Nanos deadline = question.deadline;
    SHEAF_RETURN_IF_ERROR(socket_->Connect(options.address, deadline));
    SHEAF_RETURN_IF_ERROR(socket_->Write(kBlockMagic, /*more=*/true, deadline));
    if (options.tls != nullptr) {
      SHEAF_ASSIGN_OR_RETURN(const ListenAddress there, ParseListenAddress(options.address));
      SHEAF_RETURN_IF_ERROR(
          socket_->StartTls(*options.tls, there.host, options.peer_name, deadline));
    }
    Greeting greeting;
    greeting.connection = question.ticket.connection;
    greeting.nonce = SecretBytes();
    SHEAF_RETURN_IF_ERROR(socket_->Write(BytesOf(greeting), /*more=*/false, deadline));
    Digest proof{};
    SHEAF_RETURN_IF_ERROR(socket_->ReadInto(&proof, deadline));
    const Digest right = ProofOfAnswerer(question.key, greeting.connection,
                                         question.peer_dialled_link, greeting.nonce);
    if (SameSecret(AsView(proof), AsView(right))) return absl::OkStatus();
    return absl::UnauthenticatedError(
        absl::StrCat("who answers at ", options.address, " is not the other end of the link"));
  }

  absl::Status Ask(const std::vector<Question>& questions) {
    std::string bytes;
    Nanos deadline = 0;
    for (const Question& question : questions) {
      QuestionHeader header;
      header.ticket = question.ticket;
      header.request_bytes = static_cast<uint32_t>(question.request.size());
      bytes.append(BytesOf(header)).append(question.request);
      deadline = std::max(deadline, question.deadline);
    }
    return socket_->Write(bytes, /*more=*/false, deadline);
  }

  // Calls `done`, and forgets it, if the answer came. Errors: of the connection.
  absl::Status TakeAnswer(Question& question) {
    AnswerHeader answer;
    const Nanos deadline = std::max(question.deadline, turn_until_);
    SHEAF_RETURN_IF_ERROR(socket_->ReadInto(&answer, deadline));
    if (!IsSound(answer)) {
      return absl::UnavailableError(absl::StrCat("an answer with code ", answer.code, ", ",
                                                 answer.text_bytes,
                                                 " bytes of text and a block of ", answer.bytes));
    }
    std::string text(answer.text_bytes, '\0');
    SHEAF_RETURN_IF_ERROR(socket_->ReadAll(text.data(), text.size(), deadline));
    if (answer.code == 0) {
      HandOver(question, answer.bytes, std::move(text), deadline);
      Turn();
      return absl::OkStatus();
    }
    const absl::Status reason(static_cast<absl::StatusCode>(answer.code), text);
    std::exchange(question.done, nullptr)(AsFetchFails(reason));
    Turn();
    // Who is refused is answered no more.
    return absl::IsUnauthenticated(reason) ? reason : absl::OkStatus();
  }

  void Turn() {
    const Nanos now = MonotonicNow();
    if (socket_ != nullptr) fetcher_.moved_at_ = now;
    turn_until_ = now + kPatience;
  }

  void HandOver(Question& question, uint64_t size, std::string head, Nanos deadline) {
    if (fetcher_.options_.on_bytes) fetcher_.options_.on_bytes(size);
    const uint64_t follow = size == 0 ? 0 : size + sizeof(BlockCrc);
    const auto unread =
        std::make_shared<Unread>(Unread{socket_.get(), &fetcher_.moved_at_, deadline, follow});
    const Links::FetchDone done = std::exchange(question.done, nullptr);
    done(std::make_unique<SocketBlock>(std::move(head), size, unread));
    unread->socket = nullptr;
    if (unread->left == 0) return;
    if (unread->left > kMostSkipped) return Drop();
    // What was not wanted.
    const Nanos until = MonotonicNow() + kSkipTime;
    std::string rest(std::min<uint64_t>(unread->left, kPiece), '\0');
    while (unread->left > 0) {
      const absl::StatusOr<size_t> got =
          socket_->ReadSome(rest.data(), std::min<uint64_t>(rest.size(), unread->left), until);
      if (!got.ok()) return Drop();
      unread->left -= *got;
    }
  }

  void Drop() {
    if (socket_ == nullptr) return;
    {
      const MutexLock lock(fetcher_.mutex_);
      fetcher_.sockets_.erase(socket_.get());
    }
    socket_ = nullptr;
  }

  BlockFetcher& fetcher_;
  std::unique_ptr<BlockSocket> socket_;
  Nanos turn_until_ = 0;  // Who waited for another's answer has so long at least for its own.
};

bool BlockFetcher::Ask(Question& question) {
  const MutexLock lock(mutex_);
  if (questions_.size() >= idle_ && connections_ < kConnections) {
    if (threads_.Start("links blocks", [self = shared_from_this()] { self->Run(); })) {
      ++connections_;
      ++idle_;
    } else if (connections_ == 0) {
      return false;
    }
  }
  questions_.push_back(std::move(question));
  changed_.NotifyOne();
  return true;
}

// False: it was asked twice, has no time left, or the link is down. On the thread of a connection,
// which is there to ask.
bool BlockFetcher::AskAgain(Question& question) {
  if (std::exchange(question.again, true) || MonotonicNow() >= EndOf(question)) return false;
  if (options_.renew == nullptr || !options_.renew(question)) return false;
  const MutexLock lock(mutex_);
  if (closed_) return false;
  questions_.push_back(std::move(question));
  question.done = nullptr;
  changed_.NotifyOne();
  return true;
}

// Who waits for a connection has time while they move.
Nanos BlockFetcher::EndOf(const Question& question) const {
  const Nanos moved_at = moved_at_;
  return moved_at == 0 ? question.deadline : std::max(question.deadline, moved_at + kPatience);
}

void BlockFetcher::Close(const std::string& why) {
  const MutexLock lock(mutex_);
  closed_ = true;
  why_ = why;
  for (BlockSocket* socket : sockets_) socket->Shutdown();
  changed_.NotifyAll();
}

void BlockFetcher::Run() {
  Connection connection(*this);
  for (bool first = true;; first = false) {
    std::vector<Question> questions = Next(first);
    if (questions.empty()) return;
    std::string why;
    {
      const MutexLock lock(mutex_);
      if (closed_) why = why_;
    }
    if (why.empty()) {
      connection.Serve(std::move(questions));
    } else {
      for (const Question& question : questions) question.done(absl::UnavailableError(why));
    }
  }
}

// Nothing: the connection is not needed any more.
std::vector<BlockFetcher::Question> BlockFetcher::Next(bool first) {
  const MutexLock lock(mutex_);
  if (!first) ++idle_;
  changed_.WaitFor(mutex_, options_.idle_limit, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !questions_.empty() || closed_;
  });
  --idle_;
  std::vector<Question> out;
  if (questions_.empty()) --connections_;
  size_t bytes = 0;
  const size_t share = (questions_.size() + idle_) / (idle_ + 1);  // The others are idle, too.
  while (out.size() < std::min(share, kMostTogether)) {
    bytes += sizeof(QuestionHeader) + questions_.front().request.size();
    if (!out.empty() && (connections_ < kConnections || bytes > kMostBytesTogether)) break;
    out.push_back(std::move(questions_.front()));
    questions_.pop_front();
  }
  return out;
}

}  // namespace sheaf
