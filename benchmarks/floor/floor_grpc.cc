// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What gRPC does between two processes of this machine: a bidirectional stream there and back, one
// message or many frames at a time, and bulk by byte buffers; and bulk to four processes at once,
// which is what the cores and the memory of the machine leave of a broadcast. Memory and locks are
// set as nodes of Sheaf set them. Bare sockets: floor_tcp.cc. No code of Sheaf.
#include <grpc/slice.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "figures.h"

namespace {

using grpc::ByteBuffer;

constexpr size_t kBulkBytes = 4 << 20;
constexpr size_t kFrameBytes = 128;
constexpr size_t kFramesPerMessage = 64;
constexpr int kReaders = 4;
constexpr int kBlocksPerReader = 61;  // 256 MB.

ByteBuffer BufferOf(const void* bytes, size_t size) {
  const grpc::Slice slice(bytes, size);
  return ByteBuffer(&slice, 1);
}

// --- the second process ---

class Echo final : public grpc::ServerGenericBidiReactor {
 public:
  Echo() { StartRead(&message_); }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    std::lock_guard lock(mutex_);
    waiting_.push_back(message_);
    message_.Clear();
    StartRead(&message_);
    Next();
  }
  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (ok) Next();
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (writing_ || waiting_.empty()) return;
    writing_ = true;
    out_ = waiting_.front();
    waiting_.erase(waiting_.begin());
    StartWrite(&out_);
  }
  std::mutex mutex_;
  ByteBuffer message_, out_;
  std::vector<ByteBuffer> waiting_;
  bool writing_ = false;
};

class Bulk final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Bulk(const char* bytes) {
    const grpc::Slice slice(grpc_slice_from_static_buffer(bytes, kBulkBytes),
                            grpc::Slice::STEAL_REF);
    answer_ = ByteBuffer(&slice, 1);
    StartRead(&request_);
  }
  void OnReadDone(bool) override {
    StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  ByteBuffer request_, answer_;
};

class Service final : public grpc::CallbackGenericService {
 public:
  explicit Service(const char* bytes) : bytes_(bytes) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    if (context->method() == "/floor/Echo") return new Echo;
    return new Bulk(bytes_);
  }

 private:
  const char* const bytes_;
};

[[noreturn]] void Serve(int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  const std::string bytes(kBulkBytes, 'b');
  Service service(bytes.data());
  grpc::ServerBuilder builder;
  int grpc_port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &grpc_port);
  builder.RegisterCallbackGenericService(&service);
  const auto server = builder.BuildAndStart();
  floors::Require(server != nullptr && write(out, &grpc_port, sizeof grpc_port) == sizeof grpc_port,
                  "serve");
  while (true) pause();
}

// --- the first process ---

// Sends messages over one stream, and counts what comes back.
class Caller final : public grpc::ClientBidiReactor<ByteBuffer, ByteBuffer> {
 public:
  explicit Caller(std::shared_ptr<grpc::Channel> channel) : stub_(std::move(channel)) {
    stub_.PrepareBidiStreamingCall(&context_, "/floor/Echo", {}, this);
    AddHold();
    StartRead(&in_);
    StartCall();
  }
  ~Caller() override {
    context_.TryCancel();
    RemoveHold();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }
  // `count` messages, at most `in_flight` at a time.
  void Run(const ByteBuffer& message, uint64_t count, uint64_t in_flight) {
    std::unique_lock lock(mutex_);
    message_ = message;
    limit_ = sent_ + count;
    in_flight_ = in_flight;
    Next();
    changed_.wait(lock, [this] { return back_ == limit_; });
  }
  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (ok) Next();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    std::lock_guard lock(mutex_);
    floors::Require(in_.Length() == message_.Length(), "echo");
    ++back_;
    in_.Clear();
    StartRead(&in_);
    if (back_ == limit_) changed_.notify_all();
    Next();
  }
  void OnDone(const grpc::Status&) override {
    std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

 private:
  void Next() {
    if (writing_ || sent_ == limit_ || sent_ - back_ >= in_flight_) return;
    writing_ = true;
    ++sent_;
    out_ = message_;
    StartWrite(&out_);
  }
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  ByteBuffer in_, out_, message_;
  uint64_t sent_ = 0, back_ = 0, limit_ = 0, in_flight_ = 0;
  bool writing_ = false, done_ = false;
};

// One answer of 4 MiB, copied out.
size_t Fetch(grpc::GenericStub& stub, std::string& to) {
  grpc::ClientContext context;
  const ByteBuffer request = BufferOf("please", 6);
  ByteBuffer answer;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  stub.UnaryCall(&context, "/floor/Bulk", {}, &request, &answer, [&](const grpc::Status& status) {
    floors::Require(status.ok(), "bulk");
    std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
  }
  std::vector<grpc::Slice> slices;
  floors::Require(answer.Dump(&slices).ok() && answer.Length() == kBulkBytes, "answer");
  size_t at = 0;
  for (const grpc::Slice& slice : slices) {
    std::memcpy(to.data() + at, slice.begin(), slice.size());
    at += slice.size();
  }
  return at;
}

// `fetchers` threads, each with one block on its way.
size_t FetchSeveral(grpc::GenericStub& stub, std::vector<std::string>& to, int rounds) {
  std::vector<std::thread> threads;
  for (std::string& buffer : to) {
    threads.emplace_back([&, rounds] {
      for (int i = 0; i < rounds; ++i) Fetch(stub, buffer);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return to.size() * static_cast<size_t>(rounds) * kBulkBytes;
}

std::shared_ptr<grpc::Channel> ChannelTo(int port) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                   grpc::InsecureChannelCredentials(), arguments);
}

// A process that fetches kBlocksPerReader blocks, two at a time, each time that it is told to.
class Reader {
 public:
  // Before gRPC has a thread.
  Reader() {
    floors::Require(pipe(orders_) == 0 && pipe(reports_) == 0, "pipe");
    child_ = fork();
    floors::Require(child_ >= 0, "fork");
    if (child_ == 0) Read();
  }
  ~Reader() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  void Begin(int port) {
    floors::Require(write(orders_[1], &port, sizeof port) == sizeof port, "pipe");
  }
  void Await() {
    char done;
    floors::Require(read(reports_[0], &done, 1) == 1, "reader");
  }

 private:
  [[noreturn]] void Read() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int port = 0;
    std::unique_ptr<grpc::GenericStub> stub;
    std::vector<std::string> two(2, std::string(kBulkBytes, '\0'));
    while (read(orders_[0], &port, sizeof port) == sizeof port) {
      if (stub == nullptr) stub = std::make_unique<grpc::GenericStub>(ChannelTo(port));
      FetchSeveral(*stub, two, (kBlocksPerReader + 1) / 2);
      floors::Require(write(reports_[1], "d", 1) == 1, "pipe");
    }
    std::_Exit(0);
  }
  int orders_[2], reports_[2];
  pid_t child_ = -1;
};

// Seconds until all have what they fetch.
double Broadcast(std::vector<std::unique_ptr<Reader>>& readers, int port) {
  std::vector<double> all;
  for (int round = 0; round < 4; ++round) {
    const double begin = floors::NowSeconds();
    for (const auto& reader : readers) reader->Begin(port);
    for (const auto& reader : readers) reader->Await();
    if (round != 0) all.push_back(floors::NowSeconds() - begin);  // Not the first, which connects.
  }
  return floors::Median(all);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = floors::SecondsArgument(argc, argv, 1.0);
  mallopt(M_MMAP_THRESHOLD, 8 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  int pipes[2];
  floors::Require(pipe(pipes) == 0, "pipe");
  const pid_t child = fork();  // Before gRPC has a thread.
  floors::Require(child >= 0, "fork");
  if (child == 0) Serve(pipes[1]);
  int port = 0;
  floors::Require(read(pipes[0], &port, sizeof port) == sizeof port, "port");

  {
    std::vector<std::unique_ptr<Reader>> readers(kReaders);
    for (auto& reader : readers) reader = std::make_unique<Reader>();
    floors::Print("floor_grpc_256mb_to_4_processes", "s", Broadcast(readers, port));
  }
  const auto channel = ChannelTo(port);
  {
    Caller caller(channel);
    const std::string small(64, 's'), batch(kFrameBytes * kFramesPerMessage, 'f');
    const ByteBuffer one = BufferOf(small.data(), small.size());
    const ByteBuffer many = BufferOf(batch.data(), batch.size());
    floors::Print("floor_grpc_stream_ping_pong", "1/s", floors::MedianRate(seconds, [&] {
                    caller.Run(one, 100, 1);
                    return uint64_t{100};
                  }));
    floors::Print("floor_grpc_stream_64_frames", "frames/s", floors::MedianRate(seconds, [&] {
                    caller.Run(many, 200, 8);
                    return 200 * kFramesPerMessage;
                  }));
  }
  {
    grpc::GenericStub stub(channel);
    std::vector<std::string> one(1, std::string(kBulkBytes, '\0'));
    std::vector<std::string> two(2, std::string(kBulkBytes, '\0'));
    floors::Print("floor_grpc_bytes_4mib", "GB/s",
                  floors::MedianRate(seconds, [&] { return FetchSeveral(stub, one, 8); }) / 1e9);
    floors::Print("floor_grpc_bytes_4mib_2_at_once", "GB/s",
                  floors::MedianRate(seconds, [&] { return FetchSeveral(stub, two, 4); }) / 1e9);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}
