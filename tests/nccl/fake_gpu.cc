// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A stand-in for libcuda.so.1 and libnccl.so.2 in one library, for machines without a GPU. Device
// memory is the process's own; a communicator is a thread that runs its operations in order, as
// soon as all ranks, which are threads of one process, have called them. As the real ones: calls do
// not block, streams and events tell when work is done, an abort ends the waits of its own rank
// only. A communicator that was split off blocks: it waits in the first call of each kind until all
// ranks are in it. The one that it is split from hands it out when the split is done or, not
// usable but to be aborted, when an abort ends that.
//
// With SHEAF_FAKE_VERSION it says that it is that NCCL; with SHEAF_FAKE_WITHOUT_SEND it lacks
// ncclSend, with SHEAF_FAKE_NEWER it has ncclAlltoAll and ncclCommRevoke.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fake_values.h"

#ifndef SHEAF_FAKE_VERSION
#define SHEAF_FAKE_VERSION 23203
#endif

namespace {

using fake::Load;
using fake::SizeOf;
using fake::Store;

// --- CUDA ---------------------------------------------------------------------------------------

std::mutex memory_mutex;
std::map<uintptr_t, size_t> memory;  // Address to size.

struct Stream {
  std::atomic<uint64_t> launched{0};
  std::atomic<uint64_t> finished{0};
};
Stream default_stream;
Stream& Of(void* stream) {
  return stream == nullptr ? default_stream : *static_cast<Stream*>(stream);
}
struct Event {
  Stream* stream = nullptr;
  uint64_t position = 0;
};

bool IsDevice(uintptr_t address) {
  const std::lock_guard<std::mutex> lock(memory_mutex);
  auto next = memory.upper_bound(address);
  if (next == memory.begin()) return false;
  --next;
  return address < next->first + next->second;
}

// --- NCCL ---------------------------------------------------------------------------------------

enum : int { kSuccess = 0, kInternal = 3, kInvalid = 4, kRemote = 6, kInProgress = 7 };

struct Transfer {
  int peer;
  void* array;
  size_t bytes;
};
// What one rank called.
struct Call {
  enum Kind { kAllReduce, kReduce, kReduceScatter, kAllGather, kBroadcast, kGroup } kind = kGroup;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  int type = 0;
  int op = 0;
  int root = 0;
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
};

struct Clique {
  std::mutex mutex;
  std::condition_variable changed;
  int ranks = 0;
  std::atomic<int> joined{0};
  std::map<uint64_t, std::map<int, Call>> calls;  // By their number, then the rank.
  std::map<uint64_t, int> computed;
  std::map<int, int> connected;  // Ranks that have been in a call, by its kind.
};
std::mutex cliques_mutex;
std::map<std::string, std::shared_ptr<Clique>>& Cliques() {
  static auto& cliques = *new std::map<std::string, std::shared_ptr<Clique>>;
  return cliques;
}

struct Comm {
  std::shared_ptr<Clique> clique;
  std::string id;
  std::shared_ptr<Clique> splits_into;
  Comm* child = nullptr;  // Of the split, until it is handed out.
  Comm** child_to = nullptr;
  bool blocks = false;
  std::map<int, bool> connected;  // Kinds of calls.
  std::atomic<int> callers{0};    // Threads in Launch.
  std::atomic<bool> revoked{false};
  int ranks = 0;
  int rank = 0;
  std::atomic<bool> aborted{false};
  std::atomic<int> error{kSuccess};
  std::mutex mutex;
  std::condition_variable work;
  std::deque<std::function<void()>> queue;
  bool stopping = false;
  uint64_t called = 0;
  std::thread thread;
};

double Reduced(const std::map<int, Call>& calls, const Call& own, size_t index) {
  double result = 0;
  bool first = true;
  for (const auto& [rank, call] : calls) {
    const double value =
        Load(own.type, static_cast<const char*>(call.input) + index * SizeOf(own.type));
    if (first) {
      result = value;
    } else if (own.op == 1) {
      result *= value;
    } else if (own.op == 2) {
      result = std::max(result, value);
    } else if (own.op == 3) {
      result = std::min(result, value);
    } else {
      result += value;
    }
    first = false;
  }
  return own.op == 4 ? result / static_cast<double>(calls.size()) : result;
}

// The bytes that `own` leaves, by where they go.
std::vector<std::pair<void*, std::vector<char>>> Results(const std::map<int, Call>& calls,
                                                         const Call& own, int rank) {
  std::vector<std::pair<void*, std::vector<char>>> out;
  const size_t size = own.count * SizeOf(own.type);
  const auto copy = [&](const void* from, size_t bytes) {
    return std::vector<char>(static_cast<const char*>(from),
                             static_cast<const char*>(from) + bytes);
  };
  const auto reduce = [&](size_t from) {
    std::vector<char> result(size);
    for (size_t i = 0; i < own.count; ++i) {
      Store(own.type, Reduced(calls, own, from + i), result.data() + i * SizeOf(own.type));
    }
    return result;
  };
  switch (own.kind) {
    case Call::kAllReduce:
      out.emplace_back(own.output, reduce(0));
      break;
    case Call::kReduce:
      if (rank == own.root) out.emplace_back(own.output, reduce(0));
      break;
    case Call::kReduceScatter:
      out.emplace_back(own.output, reduce(own.count * static_cast<size_t>(rank)));
      break;
    case Call::kAllGather:
      for (const auto& [other, call] : calls) {
        out.emplace_back(static_cast<char*>(own.output) + size * static_cast<size_t>(other),
                         copy(call.input, size));
      }
      break;
    case Call::kBroadcast:
      out.emplace_back(own.output, copy(calls.at(own.root).input, size));
      break;
    case Call::kGroup:
      for (const Transfer& receive : own.receives) {
        for (const Transfer& send : calls.at(receive.peer).sends) {
          if (send.peer == rank) out.emplace_back(receive.array, copy(send.array, send.bytes));
        }
      }
  }
  return out;
}

// On the communicator's thread. False: aborted.
bool Execute(Comm& comm, uint64_t number, const Call& call) {
  Clique& clique = *comm.clique;
  std::unique_lock<std::mutex> lock(clique.mutex);
  const auto until = [&](auto ready) {
    clique.changed.wait(lock, [&] { return comm.aborted || ready(); });
    return !comm.aborted;
  };
  const auto all = static_cast<size_t>(comm.ranks);
  clique.calls[number].emplace(comm.rank, call);
  clique.changed.notify_all();
  if (!until([&] { return clique.calls[number].size() == all; })) {
    clique.calls[number].erase(comm.rank);  // Its arrays may be gone.
    return false;
  }
  const auto results = Results(clique.calls[number], call, comm.rank);
  ++clique.computed[number];
  clique.changed.notify_all();
  // Arrays may be input and output at once.
  if (!until([&] { return clique.computed[number] == comm.ranks; })) return false;
  for (const auto& [to, bytes] : results) std::memcpy(to, bytes.data(), bytes.size());
  return true;
}

void Loop(Comm& comm) {
  std::unique_lock<std::mutex> lock(comm.mutex);
  while (true) {
    comm.work.wait(lock, [&] { return comm.stopping || !comm.queue.empty(); });
    if (comm.queue.empty()) return;
    const std::function<void()> next = std::move(comm.queue.front());
    comm.queue.pop_front();
    lock.unlock();
    next();
    lock.lock();
  }
}

// The operations of this thread's group.
thread_local int group_depth = 0;
thread_local Call group_call;
thread_local Comm* group_comm = nullptr;
thread_local void* group_stream = nullptr;

std::atomic<int> open_comms{0};
std::atomic<int> freed_in_use{0};
std::atomic<bool> deaf{false};

// False: aborted or revoked.
bool Connect(Comm& comm, int kind) {
  if (!comm.blocks || std::exchange(comm.connected[kind], true)) return true;
  Clique& clique = *comm.clique;
  std::unique_lock<std::mutex> lock(clique.mutex);
  ++clique.connected[kind];
  clique.changed.notify_all();
  clique.changed.wait(lock, [&] {
    return ((comm.aborted || comm.revoked) && !deaf) || clique.connected[kind] >= comm.ranks;
  });
  return !comm.aborted && !comm.revoked;
}

int Launch(Comm* comm, void* stream, Call call) {
  if (const int error = comm->error; error != kSuccess) return error;
  ++comm->callers;
  const bool connected = Connect(*comm, call.kind);
  --comm->callers;
  if (!connected) return kInternal;
  Stream& on = Of(stream);
  ++on.launched;
  const std::lock_guard<std::mutex> lock(comm->mutex);
  comm->queue.push_back([comm, &on, number = ++comm->called, call = std::move(call)] {
    Execute(*comm, number, call);
    ++on.finished;
  });
  comm->work.notify_all();
  return kSuccess;
}

void HandOutChild(Comm& comm) {
  if (comm.child != nullptr) *comm.child_to = std::exchange(comm.child, nullptr);
}

void End(Comm* comm, bool abort) {
  HandOutChild(*comm);
  {
    const std::lock_guard<std::mutex> lock(comm->clique->mutex);
    if (abort) comm->aborted = true;
    comm->clique->changed.notify_all();
  }
  {
    const std::lock_guard<std::mutex> lock(comm->mutex);
    comm->stopping = true;
    comm->work.notify_all();
  }
  if (deaf && comm->callers > 0) ++freed_in_use;
  while (comm->callers > 0) std::this_thread::yield();
  comm->thread.join();
  delete comm;
  --open_comms;
}

}  // namespace

extern "C" {

// --- what the driver exports ---------------------------------------------------------------------

static int fake_devices = 1;
int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuGetErrorName(int, const char** name) { return *name = "CUDA_ERROR_FAKE", 0; }
int cuGetErrorString(int, const char** text) { return *text = "an error of the stand-in", 0; }
int cuDeviceGetCount(int* count) { return *count = fake_devices, 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetName(char* name, int size, int) { return std::strncpy(name, "stand-in", size), 0; }
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &fake_devices, 0; }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxPushCurrent_v2(void*) { return 0; }
int cuCtxPopCurrent_v2(void**) { return 0; }
int cuMemAlloc_v2(unsigned long long* pointer, size_t bytes) {
  if (bytes > size_t{1} << 40) return 2;
  void* address = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  const std::lock_guard<std::mutex> lock(memory_mutex);
  memory[reinterpret_cast<uintptr_t>(address)] = bytes;
  *pointer = reinterpret_cast<uintptr_t>(address);
  return 0;
}
int cuMemFree_v2(unsigned long long pointer) {
  const std::lock_guard<std::mutex> lock(memory_mutex);
  memory.erase(pointer);
  std::free(reinterpret_cast<void*>(pointer));
  return 0;
}
int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t bytes) {
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), 0;
}
int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes) {
  return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), 0;
}
int cuPointerGetAttribute(void* value, int attribute, unsigned long long pointer) {
  if (!IsDevice(pointer)) return 1;
  const int answer = attribute == 2 ? 2 : 0;  // The kind of memory: device; its number: 0.
  return std::memcpy(value, &answer, sizeof answer), 0;
}
int cuStreamCreate(void** stream, unsigned) { return *stream = new Stream, 0; }
int cuStreamDestroy_v2(void* stream) { return delete static_cast<Stream*>(stream), 0; }
int cuStreamWaitEvent(void*, void*, unsigned) { return 0; }
int cuEventCreate(void** event, unsigned) { return *event = new Event, 0; }
int cuEventDestroy_v2(void* event) { return delete static_cast<Event*>(event), 0; }
int cuEventRecord(void* event, void* stream) {
  *static_cast<Event*>(event) = {&Of(stream), Of(stream).launched};
  return 0;
}
int cuEventQuery(void* event) {
  const Event& of = *static_cast<Event*>(event);
  return of.stream->finished >= of.position ? 0 : 600;
}

// --- what NCCL exports ---------------------------------------------------------------------------

struct FakeId {
  char bytes[128];
};
struct FakeConfig {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};
// The next ncclCommGetAsyncError of this process that is asked about a running operation, and all
// later ones of its communicator, say this.
static std::atomic<int> next_error{kSuccess};
void fake_gpu_fail_next(int error) { next_error = error; }
// Communicators that were neither destroyed nor aborted.
int fake_gpu_open_comms() { return open_comms; }
// As long as it is deaf neither an abort nor a revocation ends the call that waits for other ranks.
void fake_gpu_deafen(bool now) { deaf = now; }
// Communicators that were ended under such a call, which a real one does not survive.
int fake_gpu_freed_in_use() { return freed_in_use; }
// The next ncclCommFinalize of a communicator that blocks returns this.
static std::atomic<int> next_finalize{kSuccess};
void fake_gpu_fail_finalize(int error) { next_finalize = error; }

int ncclGetVersion(int* version) { return *version = SHEAF_FAKE_VERSION, 0; }
const char* ncclGetErrorString(int error) {
  return error == kRemote ? "remote process exited" : "?";
}
const char* ncclGetLastError(void*) { return ""; }
int ncclGetUniqueId(FakeId* id) {
  static std::atomic<int> last{0};
  *id = {};
  const std::string text = "stand-in " + std::to_string(++last);
  return std::memcpy(id->bytes, text.data(), text.size()), 0;
}
static void Join(Comm** out, const std::string& id, int ranks, int rank, bool blocks) {
  auto comm = new Comm;
  ++open_comms;
  {
    const std::lock_guard<std::mutex> lock(cliques_mutex);
    std::shared_ptr<Clique>& clique = Cliques()[id];
    if (clique == nullptr) clique = std::make_shared<Clique>();
    comm->clique = clique;
  }
  comm->id = id;
  comm->ranks = ranks;
  comm->rank = rank;
  comm->blocks = blocks;
  const std::lock_guard<std::mutex> lock(comm->clique->mutex);
  ++comm->clique->joined;
  comm->thread = std::thread([comm] { Loop(*comm); });
  *out = comm;
}
static bool Valid(const FakeConfig& config, int blocking) {
  return config.magic == 0xcafebeef && config.size >= sizeof(FakeConfig) &&
         config.blocking == blocking;
}
int ncclCommInitRankConfig(Comm** out, int ranks, FakeId id, int rank, FakeConfig* config) {
  if (!Valid(*config, /*blocking=*/0)) return kInvalid;
  Join(out, id.bytes, ranks, rank, /*blocks=*/false);
  return kInProgress;
}
int ncclCommSplit(Comm* comm, int, int key, Comm** child, FakeConfig* config) {
  if (!Valid(*config, /*blocking=*/1) || key != comm->rank) return kInvalid;
  *child = nullptr;
  comm->child_to = child;
  Join(&comm->child, comm->id + " split", comm->ranks, key, /*blocks=*/true);
  comm->splits_into = comm->child->clique;
  return kInProgress;
}
int ncclCommGetAsyncError(Comm* comm, int* error) {
  const std::lock_guard<std::mutex> lock(comm->clique->mutex);
  int expected = comm->called > 0 ? next_error.load() : kSuccess;
  if (expected != kSuccess && next_error.compare_exchange_strong(expected, kSuccess)) {
    comm->error = expected;
  }
  const Clique& meeting = comm->splits_into != nullptr ? *comm->splits_into : *comm->clique;
  *error = comm->error != kSuccess        ? comm->error.load()
           : meeting.joined < comm->ranks ? kInProgress
                                          : kSuccess;
  if (*error == kSuccess) HandOutChild(*comm);
  return kSuccess;
}
int ncclCommFinalize(Comm* comm) {
  return comm->blocks ? next_finalize.exchange(kSuccess) : int{kSuccess};
}
int ncclCommDestroy(Comm* comm) { return End(comm, /*abort=*/false), 0; }
int ncclCommAbort(Comm* comm) { return End(comm, /*abort=*/true), 0; }

int ncclAllReduce(const void* input, void* output, size_t count, int type, int op, Comm* comm,
                  void* stream) {
  return Launch(comm, stream, {Call::kAllReduce, input, output, count, type, op, 0, {}, {}});
}
int ncclReduce(const void* input, void* output, size_t count, int type, int op, int root,
               Comm* comm, void* stream) {
  return Launch(comm, stream, {Call::kReduce, input, output, count, type, op, root, {}, {}});
}
int ncclReduceScatter(const void* input, void* output, size_t count, int type, int op, Comm* comm,
                      void* stream) {
  return Launch(comm, stream, {Call::kReduceScatter, input, output, count, type, op, 0, {}, {}});
}
int ncclAllGather(const void* input, void* output, size_t count, int type, Comm* comm,
                  void* stream) {
  return Launch(comm, stream, {Call::kAllGather, input, output, count, type, 0, 0, {}, {}});
}
int ncclBroadcast(const void* input, void* output, size_t count, int type, int root, Comm* comm,
                  void* stream) {
  return Launch(comm, stream, {Call::kBroadcast, input, output, count, type, 0, root, {}, {}});
}
int ncclGroupStart() { return ++group_depth, 0; }
int ncclGroupEnd() {
  if (--group_depth > 0 || group_comm == nullptr) return kSuccess;
  return Launch(std::exchange(group_comm, nullptr), group_stream,
                std::exchange(group_call, Call()));
}
#ifndef SHEAF_FAKE_WITHOUT_SEND
int ncclSend(const void* input, size_t count, int type, int peer, Comm* comm, void* stream) {
  ncclGroupStart();
  group_comm = comm;
  group_stream = stream;
  group_call.sends.push_back({peer, const_cast<void*>(input), count * SizeOf(type)});
  return ncclGroupEnd();
}
#endif
int ncclRecv(void* output, size_t count, int type, int peer, Comm* comm, void* stream) {
  ncclGroupStart();
  group_comm = comm;
  group_stream = stream;
  group_call.receives.push_back({peer, output, count * SizeOf(type)});
  return ncclGroupEnd();
}
#ifdef SHEAF_FAKE_NEWER
int ncclAlltoAll(const void* input, void* output, size_t count, int type, Comm* comm,
                 void* stream) {
  const size_t block = count * SizeOf(type);
  ncclGroupStart();
  for (int rank = 0; rank < comm->ranks; ++rank) {
    const size_t offset = static_cast<size_t>(rank) * block;
    ncclSend(static_cast<const char*>(input) + offset, count, type, rank, comm, stream);
    ncclRecv(static_cast<char*>(output) + offset, count, type, rank, comm, stream);
  }
  return ncclGroupEnd();
}
int ncclCommRevoke(Comm* comm, int) {
  const std::lock_guard<std::mutex> lock(comm->clique->mutex);
  comm->revoked = true;
  comm->clique->changed.notify_all();
  return kSuccess;
}
#endif
}
