// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Collective groups of real actors on a real node: values, a member that dies, one that is stopped,
// and the group that follows.
#include <signal.h>
#include <unistd.h>

#include <sheaf/collective.h>
#include <sheaf/gradients.h>
#include <sheaf/sheaf.h>
#include <catch2/catch.hpp>
#include <numeric>

#include "tests/catch/run.h"

namespace members {

using namespace std::chrono_literals;
namespace collective = sheaf::collective;

class Member {
 public:
  Member(int world_size, int rank) : world_size_(world_size), rank_(rank) {}

  int Pid() { return static_cast<int>(getpid()); }
  uint64_t Join(const std::string& name) {
    group_ = collective::Group::Init(name, world_size_, rank_);
    return group_.epoch();
  }
  // The sums of private and of shared arrays.
  std::vector<double> Sums(size_t count) {
    std::vector<float> own(count, static_cast<float>(rank_ + 1));
    group_.AllReduce(own);
    auto shared = group_.Allocate<double>(count);
    std::fill(shared.begin(), shared.end(), rank_ + 1);
    collective::Work work = group_.StartAllReduce(shared, collective::Op::kAverage);
    work.Wait();
    return {own.front(), own.back(), shared[0], shared[count - 1]};
  }
  // One of each other operation; the first that is wrong, or nothing.
  std::string Others() {
    const size_t world = static_cast<size_t>(world_size_);
    std::vector<int32_t> mine{rank_, 10 * rank_}, all(2 * world);
    group_.AllGather(mine, all);
    for (int r = 0; r < world_size_; ++r) {
      if (all[2 * r] != r || all[2 * r + 1] != 10 * r) return "AllGather";
    }
    group_.ReduceScatter(all, mine);
    if (mine != std::vector<int32_t>{world_size_ * rank_, world_size_ * 10 * rank_}) {
      return "ReduceScatter";
    }
    std::vector<int64_t> out(world, rank_), in(world);
    group_.AllToAll(out, in);
    for (int r = 0; r < world_size_; ++r) {
      if (in[static_cast<size_t>(r)] != r) return "AllToAll";
    }
    double value = rank_;
    group_.Broadcast(std::span(&value, 1), world_size_ - 1);
    if (value != world_size_ - 1) return "Broadcast";
    value = rank_ + 1;
    group_.Reduce(std::span(&value, 1), 0, collective::Op::kMax);
    if (value != (rank_ == 0 ? world_size_ : rank_ + 1)) return "Reduce";
    const int next = (rank_ + 1) % world_size_, previous = (rank_ + world_size_ - 1) % world_size_;
    const std::vector<float> sent(3, static_cast<float>(rank_));
    std::vector<float> received(3);
    group_.Send(sent, next);  // Small enough to be copied before anyone receives it.
    group_.Receive(received, previous);
    if (received[2] != static_cast<float>(previous)) return "Receive";
    group_.Barrier();
    return "";
  }
  // Gradients in two buckets, in two steps, plainly and as float16.
  std::string Gradients() {
    for (const auto compression :
         {collective::Compression::kNone, collective::Compression::kFloat16}) {
      collective::GradientOptions options;
      options.compression = compression;
      options.bucket_bytes = 4096;
      collective::GradientReducer reducer(group_, {{"last", 1000}, {"first", 500}}, options);
      for (int step = 0; step < 2; ++step) {
        for (size_t index : {0, 1}) {
          const std::span<float> array = reducer.array(index);
          std::fill(array.begin(), array.end(), static_cast<float>(rank_ + step));
          reducer.MarkReady(index);
        }
        reducer.Finish();
        const float average = static_cast<float>(world_size_ - 1) / 2 + static_cast<float>(step);
        if (reducer.array(0).back() != average || reducer.array(1).front() != average) {
          return "an average of " + std::to_string(reducer.array(0).back());
        }
      }
    }
    try {
      collective::GradientReducer nothing(group_, {});
      return "no arrays";
    } catch (const sheaf::InvalidArgumentError&) {
    }
    return "";
  }
  // The type of the exception, the rank that it names, and its words.
  std::string Failure(size_t count) {
    std::vector<float> array(count, 1);
    try {
      group_.AllReduce(array);
    } catch (const collective::LostRankError& error) {
      return Words("lost", error);
    } catch (const collective::LateRankError& error) {
      return Words("late", error);
    } catch (const collective::MismatchError& error) {
      return Words("mismatch", error);
    } catch (const collective::DeadGroupError& error) {
      return Words("dead", error);
    }
    return "none";
  }
  std::string LateBarrier() {
    collective::GroupOptions options;
    options.timeout = 300ms;
    collective::Group pair = collective::Group::Init("late", world_size_, rank_, options);
    if (rank_ == 1) raise(SIGSTOP);
    try {
      pair.Barrier();
    } catch (const collective::LateRankError& error) {
      return Words("late", error);
    }
    return "none";
  }

 private:
  static std::string Words(const char* type, const collective::CollectiveError& error) {
    return std::string(type) + " " + std::to_string(error.rank().value_or(-1)) + ": " +
           error.what();
  }
  const int world_size_;
  const int rank_;
  collective::Group group_;
};
SHEAF_ACTOR(Member, sheaf::Constructor<int, int>, &Member::Pid, &Member::Join, &Member::Sums,
            &Member::Others, &Member::Gradients, &Member::Failure, &Member::LateBarrier);

using Handle = sheaf::ActorHandle<Member>;

std::vector<Handle> Members(int world_size) {
  std::vector<Handle> members;
  for (int rank = 0; rank < world_size; ++rank) {
    members.push_back(sheaf::Actor<Member>().Resources({{"CPU", 0}}).Remote(world_size, rank));
  }
  return members;
}
template <class Method, class... Arguments>
auto OnAll(std::vector<Handle>& members, Method method, const Arguments&... arguments) {
  using Result = decltype(sheaf::Get(members[0].Task(method).Remote(arguments...)));
  std::vector<sheaf::ObjectRef<std::decay_t<Result>>> calls;
  for (Handle& member : members) calls.push_back(member.Task(method).Remote(arguments...));
  return sheaf::Get(calls);
}
bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("actors form a group, and reduce and exchange arrays") {
  auto members = Members(3);
  const std::string name = "values";
  CHECK(OnAll(members, &Member::Join, name) == std::vector<uint64_t>{0, 0, 0});
  for (size_t count : {1, 1000, 300'000}) {
    for (const auto& sums : OnAll(members, &Member::Sums, count)) {
      CHECK(sums == std::vector<double>{6, 6, 2, 2});
    }
  }
  CHECK(OnAll(members, &Member::Others) == std::vector<std::string>(3));
  CHECK(OnAll(members, &Member::Gradients) == std::vector<std::string>(3));
}

TEST_CASE(
    "a member that dies is named to the others, and its successor forms the group with them") {
  auto members = Members(3);
  const std::string name = "deaths";
  OnAll(members, &Member::Join, name);
  const size_t count = 100'000;
  std::vector<sheaf::ObjectRef<std::string>> calls;
  for (int rank : {0, 2}) calls.push_back(members[rank].Task(&Member::Failure).Remote(count));
  kill(sheaf::Get(members[1].Task(&Member::Pid).Remote()), SIGKILL);
  for (const std::string& words : sheaf::Get(calls)) {
    INFO(words);
    CHECK(Contains(words, "lost 1: all_reduce (float32 x 100000, sum) #1"));
  }
  CHECK(Contains(sheaf::Get(members[0].Task(&Member::Failure).Remote(count)), "dead 1: "));
  members[1] = sheaf::Actor<Member>().Resources({{"CPU", 0}}).Remote(3, 1);
  CHECK(OnAll(members, &Member::Join, name) == std::vector<uint64_t>{1, 1, 1});
  CHECK(OnAll(members, &Member::Failure, count) == std::vector<std::string>(3, "none"));
}

TEST_CASE("a member that is stopped is named after the timeout") {
  auto members = Members(2);
  const int pid = sheaf::Get(members[1].Task(&Member::Pid).Remote());
  auto first = members[0].Task(&Member::LateBarrier).Remote();
  auto second = members[1].Task(&Member::LateBarrier).Remote();
  const std::string words = sheaf::Get(first);
  kill(pid, SIGCONT);
  INFO(words);
  CHECK(Contains(words, "late 1: rank 1 (process " + std::to_string(pid) +
                            ", which is stopped) has not entered barrier #1 within 300ms"));
  CHECK(Contains(sheaf::Get(second), "late 1: "));
}

TEST_CASE("a member that calls with another size is named on all") {
  auto members = Members(2);
  const std::string name = "mismatch";
  OnAll(members, &Member::Join, name);
  auto first = members[0].Task(&Member::Failure).Remote(10);
  auto second = members[1].Task(&Member::Failure).Remote(11);
  CHECK(Contains(sheaf::Get(first), "mismatch 1: rank 1 called all_reduce (float32 x 11, sum) #1"));
  CHECK(Contains(sheaf::Get(second), "mismatch 1: rank 1 (this one) called all_reduce"));
}

TEST_CASE("a driver may be a rank, and wrong arguments change nothing") {
  collective::Group group = collective::Group::Init("alone", 1, 0);
  std::vector<float> array{1, 2};
  CHECK_THROWS_AS(group.Broadcast(array, 1), sheaf::InvalidArgumentError);
  CHECK_THROWS_AS(group.AllGather(array, std::vector<float>(3)), sheaf::InvalidArgumentError);
  CHECK_THROWS_AS(collective::Group().Barrier(), sheaf::InvalidArgumentError);
  CHECK_THROWS_AS(collective::Group::Init("alone", 2, 2), sheaf::InvalidArgumentError);
  group.AllReduce(array);
  CHECK(array == std::vector<float>{1, 2});
  CHECK(group.healthy());
  collective::GroupOptions options;
  options.formation_timeout = 200ms;
  CHECK_THROWS_AS(collective::Group::Init("missing", 2, 0, options), collective::LateRankError);
}

}  // namespace members

int main(int argc, char** argv) {
  sheaf::InitOptions options;
  options.cpus = 4;
  sheaf::Init(argc, argv, options);
  return sheaf::RunTests(argc, argv);
}
