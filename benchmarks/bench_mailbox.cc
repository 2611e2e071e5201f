// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Calls between two processes over their mailboxes, in the pattern of floor/floor_ring, which is
// run in turns with them: the distance between the two is what lanes, lengths, batches and the
// choice of a peer cost.
//   bench_mailbox [--seconds N] [--floor PATH_OF_floor_ring] [--only FIGURE] [--two-cores]
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <string>

#include "benchmarks/floor/figures.h"
#include "shm/mailbox.h"

namespace sheaf {
namespace {

constexpr ProcessId kCaller{1, 1}, kReplier{1, 2};
constexpr uint32_t kCallerBell = 1, kReplierBell = 2;
constexpr int kSpinSteps = 8 * 200;  // The same time as floor_ring, in smaller steps.
constexpr uint64_t kInFlight = 1000;

struct Call {
  uint64_t id;
  uint64_t arguments[8];
};
struct Reply {
  uint64_t id;
  uint64_t value;
};

// Polls until a frame came, with `spin_steps` of spinning before each sleep.
void Await(Mailbox& mailbox, FrameHandler& handler, int spin_steps) {
  for (int spins = 0; mailbox.Poll(handler, true) == 0; ++spins) {
    if (spins < spin_steps) {
      SpinStep(spins);
      continue;
    }
    SetBell(mailbox.bell(), BellState::kAsleep);
    if (!mailbox.Pending(true)) SleepOnBell(mailbox.bell(), kLongestSleep);
    SetBell(mailbox.bell(), BellState::kAwake);
  }
}

struct Replier final : FrameHandler {
  explicit Replier(Mailbox& mailbox) : to_caller(mailbox.To(kCaller)) {}
  void OnFrame(ProcessId, const Frame& frame) override {
    const Call* call = FrameHead<Call>(frame.body);
    Reply reply{call->id, 0};
    for (uint64_t argument : call->arguments) reply.value += argument;
    to_caller.Send(Lane::kControl, FrameKind::kTaskReply, AsBytes(reply));
  }
  void OnMalformed(ProcessId) override { floors::Require(false, "frame"); }
  Channel& to_caller;
};

class Caller final : public FrameHandler {
 public:
  Caller(Mailbox& mailbox, int spin_steps)
      : mailbox_(mailbox), to_replier_(mailbox.To(kReplier)), spin_steps_(spin_steps) {}
  void OnFrame(ProcessId, const Frame& frame) override {
    const Reply* reply = FrameHead<Reply>(frame.body);
    floors::Require(reply != nullptr && reply->id == seen_ && reply->value == 8 * seen_ + 28,
                    "reply");
    ++seen_;
  }
  void OnMalformed(ProcessId) override { floors::Require(false, "frame"); }

  // `count` calls, then their `count` results.
  uint64_t Batch(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i, ++called_) {
      Call call{called_, {}};
      for (uint64_t j = 0; j < 8; ++j) call.arguments[j] = called_ + j;
      to_replier_.Send(Lane::kWork, FrameKind::kPushTask, AsBytes(call));
    }
    while (seen_ != called_) Await(mailbox_, *this, spin_steps_);
    return count;
  }

 private:
  Mailbox& mailbox_;
  Channel& to_replier_;
  const int spin_steps_;
  uint64_t called_ = 0, seen_ = 0;
};

int argument_count;
char** arguments;

// Calls per second between two new processes.
double Measure(int spin_steps, uint64_t in_flight, double seconds) {
  UniqueFd board_fd = MakeSegment("bells", kBellBoardBytes).value();
  UniqueFd pair = MakeSegment("ring pair", kRingPairBytes).value();
  Mapping board = Mapping::Map(board_fd.get(), 0, kBellBoardBytes, Access::kReadWrite).value();
  Bell* bells = reinterpret_cast<Bell*>(board.data());
  const pid_t child = fork();
  floors::Require(child >= 0, "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    floors::PlaceProcess(argument_count, arguments, true);
    Mailbox mailbox(bells, kReplierBell, nullptr);
    floors::Require(mailbox.AddRing(kCaller, pair.get(), false, kCallerBell).ok(), "ring");
    Replier replier(mailbox);
    while (true) {
      Await(mailbox, replier, spin_steps);
      if (in_flight > 1) floors::PauseBetweenLooks();
    }
  }
  Mailbox mailbox(bells, kCallerBell, nullptr);
  floors::Require(mailbox.AddRing(kReplier, pair.get(), true, kReplierBell).ok(), "ring");
  Caller caller(mailbox, spin_steps);
  auto batch = [&] {
    uint64_t done = 0;
    while (done < 100) done += caller.Batch(in_flight);
    return done;
  };
  floors::Rate(seconds / 4, batch);  // Warm up.
  const double rate = floors::Rate(seconds, batch);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return rate;
}

// The figures of one run of floor_ring.
std::map<std::string, double> RunFloor(const std::string& path, double seconds) {
  std::map<std::string, double> values;
  std::string command = path + " --seconds " + std::to_string(seconds);
  for (int i = 1; i < argument_count; ++i) {
    if (std::string_view(arguments[i]) == "--two-cores") command += " --two-cores";
  }
  FILE* output = popen(command.c_str(), "r");
  floors::Require(output != nullptr, "floor_ring");
  char line[256], name[128];
  double value = 0;
  while (std::fgets(line, sizeof line, output) != nullptr) {
    if (std::sscanf(line, "{\"name\": \"%127[^\"]\", \"unit\": \"calls/s\", \"value\": %lf}", name,
                    &value) == 2) {
      values[name] = value;
    }
  }
  pclose(output);
  return values;
}

struct Figure {
  const char* name;
  int spin_steps;
  uint64_t in_flight;
};
constexpr Figure kFigures[] = {{"sync_spinning", kSpinSteps, 1},
                               {"sync_asleep", 0, 1},
                               {"1000_in_flight", kSpinSteps, kInFlight}};

}  // namespace

int Main(int argc, char** argv) {
  argument_count = argc;
  arguments = argv;
  floors::PlaceProcess(argc, argv, false);
  const double seconds = floors::SecondsArgument(argc, argv, 1.0);
  const std::string self = argv[0];
  std::string floor = self.substr(0, self.rfind('/') + 1) + "floor/floor_ring";
  std::string only;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string_view(argv[i]) == "--floor") floor = argv[i + 1];
    if (std::string_view(argv[i]) == "--only") only = argv[i + 1];
  }
  std::map<std::string, std::vector<double>> floor_values, own_values;
  for (int i = 0; i < floors::kRepetitions; ++i) {
    if (only.empty()) {
      for (const auto& [name, value] : RunFloor(floor, seconds / floors::kRepetitions)) {
        floor_values[name].push_back(value);
      }
    }
    for (const Figure& figure : kFigures) {
      if (!only.empty() && only != figure.name) continue;
      own_values[figure.name].push_back(
          Measure(figure.spin_steps, figure.in_flight, seconds / floors::kRepetitions));
    }
  }
  for (const auto& [name, values] : own_values) {
    floors::Print(("mailbox_" + name).c_str(), "calls/s", floors::Median(values));
    const auto& beside = floor_values["floor_ring_" + name];
    if (beside.empty()) continue;
    floors::Print(("floor_ring_" + name).c_str(), "calls/s", floors::Median(beside));
    floors::Print(("mailbox_" + name + "_of_floor").c_str(), "ratio",
                  floors::Median(values) / floors::Median(beside));
  }
  return 0;
}

}  // namespace sheaf

int main(int argc, char** argv) { return sheaf::Main(argc, argv); }
