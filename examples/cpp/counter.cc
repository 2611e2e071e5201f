// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "counter.h"

#include <sheaf/sheaf.h>
#include <deque>
#include <string>

#include "console.h"

namespace examples {
namespace {

constexpr size_t kInFlight = 2'000;  // Calls whose answers have not been looked at.

}  // namespace

class Counter {
 public:
  Counter() = default;
  int64_t Add(int n) { return value_ += n; }
  // What it says of where it is.
  std::string Where() const {
    const sheaf::RuntimeContext context = sheaf::Context();
    return "process " + std::to_string(context.process) + " of node " +
           std::to_string(context.node);
  }

 private:
  int64_t value_ = 0;
};
SHEAF_ACTOR(Counter, sheaf::Constructor<>, &Counter::Add, &Counter::Where);

bool RunCounter(int calls) {
  Title("Counter",
        WithCommas(static_cast<uint64_t>(calls)) + " calls of one actor, every answer checked");
  const sheaf::ActorHandle<Counter> counter = sheaf::Actor<Counter>().Remote();
  Row("actor", sheaf::Get(counter.Task(&Counter::Where).Remote()));

  auto add = counter.Task(&Counter::Add);
  std::deque<sheaf::ObjectRef<int64_t>> in_flight;
  Progress progress("calls");
  const Stopwatch watch;
  int64_t wrong = 0;
  int64_t expected = 0;
  int answered = 0;
  const auto check_oldest = [&] {
    ++answered;
    expected += answered;
    if (sheaf::Get(in_flight.front()) != expected) ++wrong;
    in_flight.pop_front();
    if (answered % 1'000 == 0)
      progress.Show(1.0 * answered / calls, WithCommas(static_cast<uint64_t>(answered)));
  };
  for (int call = 1; call <= calls; ++call) {
    in_flight.push_back(add.Remote(call));
    if (in_flight.size() == kInFlight) check_oldest();
  }
  while (!in_flight.empty()) check_oldest();
  const double seconds = watch.seconds();
  progress.Done(WithCommas(static_cast<uint64_t>(calls)) + " in " + Seconds(seconds) + ": " +
                WithCommas(static_cast<uint64_t>(calls / seconds)) + " a second");

  constexpr int kSync = 2'000;
  const Stopwatch sync;
  for (int call = 0; call < kSync; ++call) sheaf::Get(add.Remote(0));
  Row("one by one", Seconds(sync.seconds() / kSync) + " from call to answer");
  Row("state", WithCommas(static_cast<uint64_t>(expected)) +
                   (wrong == 0 ? ", as it must be"
                               : ", but " + std::to_string(wrong) + " answers were wrong"));
  return wrong == 0;
}

}  // namespace examples
