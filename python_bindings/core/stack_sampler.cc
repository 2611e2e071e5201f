// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/stack_sampler.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "telemetry/profile_writer.h"

namespace sheaf::python {

// A thread that runs calls. Guarded by the GIL.
struct CallThread {
  unsigned long ident = 0;  // As Python names it.
  bool runs = false;
};

namespace {

constexpr size_t kMostFrames = 200;                       // Of a stack, the innermost ones.
constexpr Nanos kPatience = 20 * kMillisecond;            // Then the main thread does not come by.
constexpr Nanos kLongestPeriod = 100 * kMillisecond;      // While hardly a processor works for it.
constexpr Nanos kLongestIdlePeriod = 320 * kMillisecond;  // While no look finds a call.
constexpr Nanos kStaysAwake = 500 * kMillisecond;         // After the last call.
constexpr size_t kMostThreads = 1000;                     // Whose work is remembered.
constexpr char kHeldFrame[] = "(native code holds the GIL)";

class Sampler {
 public:
  Sampler(std::shared_ptr<std::byte> segment, int64_t hz)
      : segment_(std::move(segment)),
        writer_(telemetry::ProfilePageOf(segment_.get())),
        period_(kSecond / hz) {}

  // With the GIL, as all below up to Wake.
  void Begin(CallThread& thread) {
    thread.runs = true;
    running_.store(running_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    CountCall();
  }
  void End(CallThread& thread, PyObject* function) {
    if (wanted_.load(std::memory_order_acquire)) [[unlikely]]
      Take(&thread, function);
    thread.runs = false;
    running_.store(running_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  }
  void BeginAsync() {
    has_loops_.store(true, std::memory_order_relaxed);
    CountCall();
  }
  CallThread& Here() {
    thread_local CallThread* here = nullptr;
    if (here == nullptr) {
      here = new CallThread{static_cast<unsigned long>(pthread_self())};  // For the process's life.
      call_threads_.push_back(here);
    }
    return *here;
  }

 private:
  struct Code {
    Owned object;  // Keeps its address its own.
    uint32_t frame = 0;
    bool of_worker = false;  // Of sheaf._worker: what is outside is no user's.
  };

  void CountCall() {
    calls_.store(calls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (asleep_.load(std::memory_order_relaxed)) [[unlikely]]
      Wake();
  }
  void Wake();
  void Run();
  bool Sleep();
  void Forget();
  void Tick();
  bool IsQuiet(Nanos elapsed);
  void Ask(Nanos now, Nanos elapsed);
  static int ComeBy(void* sampler);
  void Take(const CallThread* ending, PyObject* function);
  void AddTime(uint32_t node);
  void AddWork(unsigned long ident, PyObject* frame);
  uint32_t NodeOf(PyObject* frame);
  uint32_t NodeOfFunction(PyObject* function);
  const Code& CodeOf(PyObject* code);
  const CallThread* FindThread(unsigned long ident) const;

  const std::shared_ptr<std::byte> segment_;
  const pid_t os_pid_ = getpid();

  // Guarded by the GIL; of the sample, while none is wanted, the thread's own.
  std::vector<CallThread*> call_threads_;
  telemetry::ProfileWriter writer_;
  absl::flat_hash_map<PyObject*, Code> codes_;
  absl::flat_hash_map<unsigned long, Nanos> worked_;  // CPU time of threads that run no calls.
  // Of the sample that is wanted.
  Nanos asked_at_ = 0, taken_at_ = 0;
  Nanos elapsed_ = 0;  // What it gives, and
  Nanos held_ = 0;     // as long as nobody got the GIL.

  // Words that are looked at without the GIL, and written with it but for the first two.
  std::atomic<bool> asleep_{true};
  std::atomic<bool> wanted_{false};
  std::atomic<bool> queued_{false};  // ComeBy will be called.
  std::atomic<bool> has_loops_{false};
  std::atomic<int> running_{0};
  std::atomic<uint64_t> calls_{0};

  // Of the thread alone.
  const Nanos period_;
  Nanos next_period_ = 0;
  Nanos last_tick_ = 0;
  Nanos last_call_ = 0;
  Nanos cpu_ = 0;
  uint64_t calls_seen_ = 0;

  Mutex mutex_;
  CondVar changed_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<ThreadExecutor> thread_;
};

Sampler* sampler = nullptr;

Owned Attribute(PyObject* object, const char* name) {
  Owned value = Owned::Steal(PyObject_GetAttrString(object, name));
  if (!value) PyErr_Clear();
  return value;
}

std::string TextOf(const Owned& text) {
  const Owned bytes = Owned::Steal(
      text ? PyUnicode_AsEncodedString(text.get(), "utf-8", "backslashreplace") : nullptr);
  if (!bytes) PyErr_Clear();
  return bytes ? std::string(BytesOf(bytes.get())) : std::string();
}

void Sampler::Wake() {
  asleep_.store(false, std::memory_order_relaxed);
  if (thread_ == nullptr) {
    try {
      thread_ = std::make_unique<ThreadExecutor>("sheaf-profile");
    } catch (const std::system_error&) {  // This process may start no thread more.
      return;
    }
    thread_->Post([this] { Run(); });
  }
  const MutexLock lock(mutex_);
  woken_ = true;
  changed_.NotifyAll();
}

void Sampler::Run() {
  {
    const WithGil gil;  // Kept, so that taking it later makes no thread state.
    PyGILState_Ensure();
  }
  Forget();
  while (true) {
    if (!asleep_.load(std::memory_order_relaxed)) {
      const MutexLock lock(mutex_);
      woken_ = false;
      changed_.WaitFor(mutex_, next_period_);
    } else if (Sleep()) {
      Forget();
      continue;
    }
    Tick();
  }
}

// True: a call woke this thread.
bool Sampler::Sleep() {
  const MutexLock lock(mutex_);
  const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return woken_; };
  // A call that began when this thread fell asleep may not have seen that, and is seen by then.
  if (changed_.WaitFor(mutex_, kStaysAwake, woken)) return true;
  if (calls_.load(std::memory_order_relaxed) != calls_seen_) return false;
  return changed_.WaitFor(mutex_, has_loops_.load(std::memory_order_relaxed) ? kSecond : kForever,
                          woken);
}

// What has been before is no call's.
void Sampler::Forget() {
  last_tick_ = last_call_ = MonotonicNow();
  next_period_ = period_;
  IsQuiet(0);
}

// Whether the processors have hardly worked for this process, so that its stacks are what they were.
bool Sampler::IsQuiet(Nanos elapsed) {
  const Nanos cpu = ProcessCpuTime() - ThreadCpuTime(pthread_self());
  const Nanos worked = cpu - std::exchange(cpu_, cpu);
  return worked < elapsed / 50;
}

void Sampler::Tick() {
  const Nanos now = MonotonicNow();
  const Nanos elapsed = now - std::exchange(last_tick_, now);
  const uint64_t calls = calls_.load(std::memory_order_relaxed);
  const bool begun = std::exchange(calls_seen_, calls) != calls;
  const bool runs = running_.load(std::memory_order_relaxed) > 0;
  const bool quiet = IsQuiet(elapsed);
  const bool loops_work = has_loops_.load(std::memory_order_relaxed) && !quiet;
  if (begun || runs || loops_work) {
    asleep_.store(false, std::memory_order_relaxed);
    last_call_ = now;
  } else if (now - last_call_ > kStaysAwake) {
    asleep_.store(true, std::memory_order_relaxed);
  }
  if (!runs && !loops_work) {
    // Where calls are short and few, looks are few as well: a sample gives the time since the last
    // look, so that the sums stay right, and a thousand such workers do not wake all the time.
    next_period_ = std::min(next_period_ * 2, std::max(kLongestIdlePeriod, period_));
  } else {
    next_period_ =
        quiet && !begun ? std::min(next_period_ * 2, std::max(kLongestPeriod, period_)) : period_;
    Ask(now, elapsed);
  }
}

void Sampler::Ask(Nanos now, Nanos elapsed) {
  asked_at_ = now;
  elapsed_ = elapsed;
  wanted_.store(true, std::memory_order_release);
  if (!queued_.exchange(true) && Py_AddPendingCall(ComeBy, this) != 0) queued_.store(false);
  {
    const MutexLock lock(mutex_);
    changed_.WaitFor(mutex_, kPatience,
                     [this] { return !wanted_.load(std::memory_order_acquire); });
  }
  if (wanted_.load(std::memory_order_acquire)) {
    const WithGil gil;
    if (wanted_.load(std::memory_order_relaxed)) Take(nullptr, nullptr);
  }
  last_tick_ = taken_at_;
}

// On the main thread, between two steps of Python.
int Sampler::ComeBy(void* sampler) {
  Sampler& self = *static_cast<Sampler*>(sampler);
  self.queued_.store(false, std::memory_order_relaxed);
  if (self.wanted_.load(std::memory_order_acquire)) self.Take(nullptr, nullptr);
  return 0;
}

// `ending`: the thread whose call of `function` is just over.
void Sampler::Take(const CallThread* ending, PyObject* function) {
  if (getpid() != os_pid_) return;  // A fork of user code's: the segment is its parent's.
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  taken_at_ = MonotonicNow();
  const Nanos late = taken_at_ - asked_at_;
  held_ = late > 2 * kPatience ? late : 0;  // Else who waits would have had the GIL by then.
  elapsed_ += late - held_;
  PyObject* const current_frames = PySys_GetObject("_current_frames");
  const Owned frames =
      Owned::Steal(current_frames == nullptr ? nullptr : PyObject_CallNoArgs(current_frames));
  PyObject* key = nullptr;
  PyObject* frame = nullptr;
  Py_ssize_t at = 0;
  if (worked_.size() > kMostThreads) worked_.clear();
  while (frames && PyDict_Next(frames.get(), &at, &key, &frame) != 0) {
    const unsigned long ident = PyLong_AsUnsignedLong(key);
    const CallThread* const thread = FindThread(ident);
    if (thread == nullptr) {
      AddWork(ident, frame);
    } else if (thread->runs && thread != ending) {
      AddTime(NodeOf(frame));
    }
  }
  if (ending != nullptr) AddTime(NodeOfFunction(function));
  PyErr_Restore(type, value, traceback);
  const MutexLock lock(mutex_);
  wanted_.store(false, std::memory_order_release);
  changed_.NotifyAll();
}

void Sampler::AddTime(uint32_t node) {
  if (node == telemetry::ProfileWriter::kRoot) return;
  writer_.Add(node, static_cast<uint64_t>(elapsed_ / kMicrosecond));
  if (held_ == 0) return;
  writer_.Add(writer_.Below(node, writer_.FrameOf(kHeldFrame, "", 0)),
              static_cast<uint64_t>(held_ / kMicrosecond));
}

// Of a thread that runs no call.
void Sampler::AddWork(unsigned long ident, PyObject* frame) {
  const Nanos worked = ThreadCpuTime(static_cast<pthread_t>(ident));
  const auto [before, is_new] = worked_.try_emplace(ident, worked);
  const Nanos more = worked - std::exchange(before->second, worked);
  if (is_new || more < kMicrosecond) return;  // Less: the number is another thread's now.
  if (const uint32_t node = NodeOf(frame); node != telemetry::ProfileWriter::kRoot)
    writer_.Add(node, static_cast<uint64_t>(more / kMicrosecond));
}

const CallThread* Sampler::FindThread(unsigned long ident) const {
  const auto found = std::find_if(call_threads_.begin(), call_threads_.end(),
                                  [&](const CallThread* thread) { return thread->ident == ident; });
  return found == call_threads_.end() ? nullptr : *found;
}

// Of the functions that user code is in. The root: it is in none.
uint32_t Sampler::NodeOf(PyObject* frame) {
  std::vector<uint32_t> functions;  // The innermost first.
  Owned at = Owned::Borrow(frame);
  while (at && at.get() != Py_None && functions.size() < kMostFrames) {
    const Owned object = Owned::Steal(
        reinterpret_cast<PyObject*>(PyFrame_GetCode(reinterpret_cast<PyFrameObject*>(at.get()))));
    const Code& code = CodeOf(object.get());
    if (code.of_worker) break;
    functions.push_back(code.frame);
    at = Attribute(at.get(), "f_back");
  }
  uint32_t node = telemetry::ProfileWriter::kRoot;
  for (auto function = functions.rbegin(); function != functions.rend(); ++function)
    node = writer_.Below(node, *function);
  return node;
}

uint32_t Sampler::NodeOfFunction(PyObject* function) {
  const Owned code = function == nullptr ? Owned() : Attribute(function, "__code__");
  if (!code) return telemetry::ProfileWriter::kRoot;
  return writer_.Below(telemetry::ProfileWriter::kRoot, CodeOf(code.get()).frame);
}

const Sampler::Code& Sampler::CodeOf(PyObject* object) {
  if (const auto known = codes_.find(object); known != codes_.end()) return known->second;
  static Code& none = *new Code{{}, telemetry::ProfileWriter::kNoFrame, false};
  if (codes_.size() >= telemetry::kProfileFrames) return none;
  const std::string file = TextOf(Attribute(object, "co_filename"));
  const Owned first = Attribute(object, "co_firstlineno");
  Code code;
  code.object = Owned::Borrow(object);
  code.of_worker = file.find("/sheaf/_worker/") != std::string::npos;
  code.frame =
      writer_.FrameOf(TextOf(Attribute(object, "co_qualname")), file,
                      first ? static_cast<uint32_t>(PyLong_AsUnsignedLong(first.get())) : 0);
  return codes_[object] = std::move(code);
}

}  // namespace

void PrepareSampler(std::shared_ptr<std::byte> segment, int64_t hz) {
  if (hz > 0) sampler = new Sampler(std::move(segment), hz);  // For the process's life.
}

SampledCall::SampledCall() {
  if (sampler == nullptr) return;
  thread_ = &sampler->Here();
  sampler->Begin(*thread_);
}
SampledCall::~SampledCall() {
  if (thread_ != nullptr) sampler->End(*thread_, function_.get());
}

void SampleAsyncCall() {
  if (sampler != nullptr) sampler->BeginAsync();
}

}  // namespace sheaf::python
