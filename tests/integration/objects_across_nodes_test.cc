// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Objects between real nodes: several on this machine, joined over loopback. Test, driver and
// workers are this program.
#include <fcntl.h>
#include <sheaf/sheaf.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "tests/integration/loopback_nodes.h"

namespace {

using namespace loopback;

std::vector<uint64_t> Values(uint64_t seed, size_t count) {
  std::vector<uint64_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = (seed + i) * 0x9e3779b97f4a7c15u;
  return values;
}
bool AreValues(const sheaf::Array<uint64_t>& values, uint64_t seed, size_t count) {
  if (values.size() != count) return false;
  for (size_t i = 0; i < count; ++i) {
    if (values[i] != (seed + i) * 0x9e3779b97f4a7c15u) return false;
  }
  return true;
}

std::vector<uint64_t> Make(uint64_t seed, size_t count) { return Values(seed, count); }
bool Check(sheaf::Array<uint64_t> values, uint64_t seed, size_t count) {
  return AreValues(values, seed, count);
}
uint32_t NodeOf(sheaf::Array<uint64_t> values) {
  return values.size() == 0 ? 0 : sheaf::Context().node;
}
// A reference inside a value, read where the value goes.
bool CheckInside(std::vector<sheaf::ObjectRef<std::vector<uint64_t>>> inside, uint64_t seed,
                 size_t count) {
  return sheaf::Get(inside.at(0)) == Values(seed, count);
}
std::vector<sheaf::ObjectRef<std::vector<uint64_t>>> PutThere(uint64_t seed, size_t count) {
  return {sheaf::Put(Values(seed, count))};
}

SHEAF_REMOTE(Make, Check, NodeOf, CheckInside, PutThere);

constexpr size_t kNumbers = 200'000;  // 1.6 MB.

TEST_CASE("values go to other nodes and come back") {
  Cluster cluster({.nodes = 2});
  const auto there = sheaf::Strategy::Node(cluster.members[1].number);
  REQUIRE(sheaf::Get(sheaf::Task(WhereAmI).Place(there).Remote(), 60s) ==
          cluster.members[1].number);
  SECTION("a value that this process put is an argument there") {
    const auto values = sheaf::Put(Values(1, kNumbers));
    CHECK(sheaf::Get(sheaf::Task(Check).Place(there).Remote(values, 1, kNumbers), 60s));
  }
  SECTION("a result from there is read here") {
    const auto made = sheaf::Task(Make).Place(there).Remote(2, kNumbers);
    CHECK(sheaf::Get(made, 60s) == Values(2, kNumbers));
    CHECK(sheaf::Get(sheaf::Task(Check).Place(there).Remote(made, 2, kNumbers), 60s));
  }
  SECTION("references inside values lead to them") {
    const auto inside = sheaf::Get(sheaf::Task(PutThere).Place(there).Remote(3, kNumbers), 60s);
    CHECK(sheaf::Get(inside.at(0), 60s) == Values(3, kNumbers));
    const std::vector list{sheaf::Put(Values(4, kNumbers))};
    CHECK(sheaf::Get(sheaf::Task(CheckInside).Place(there).Remote(list, 4, kNumbers), 60s));
    const std::vector small{sheaf::Put(Values(5, 10))};
    CHECK(sheaf::Get(sheaf::Task(CheckInside).Place(there).Remote(small, 5, 10), 60s));
  }
  SECTION("many small ones") {
    std::vector<sheaf::ObjectRef<bool>> checked;
    for (uint64_t i = 0; i < 200; ++i) {
      const auto value = sheaf::Put(Values(i, 20'000));
      checked.push_back(sheaf::Task(Check).Place(there).Remote(value, i, 20'000));
    }
    for (const auto& one : checked) CHECK(sheaf::Get(one, 60s));
  }
  // Nothing refers to anything any more: every copy on every node goes.
  CHECK(WaitUntil(20s, [&] { return cluster.AllEmpty(); }));
}

TEST_CASE("300 MB put on one node are read on another") {
  constexpr size_t kMany = 300'000'000 / 8;
  Cluster cluster({.nodes = 2, .store = "800MiB"});
  const auto there = sheaf::Strategy::Node(cluster.members[1].number);
  sheaf::Get(sheaf::Task(WhereAmI).Place(there).Remote(), 60s);
  {
    const auto values = sheaf::Put(Values(7, kMany));
    const auto begin = Clock::now();
    const auto read = sheaf::Task(NodeOf).Place(there).Remote(values);
    CHECK(sheaf::Get(read, 120s) == cluster.members[1].number);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::cout << "300 MB to another node: " << seconds << " s, " << 0.3 / seconds << " GB/s\n";
    CHECK(sheaf::Get(sheaf::Task(Check).Place(there).Remote(values, 7, kMany), 120s));
    SECTION("a source that stands still for two seconds delays it, no more") {
      const auto more = sheaf::Task(Make).Place(there).Remote(8, kMany);
      CHECK(sheaf::Wait(std::vector{more}, 1, 120s).ready.size() == 1);
      cluster.Signal(1, SIGSTOP);
      std::thread wake([&] {
        std::this_thread::sleep_for(2s);
        cluster.Signal(1, SIGCONT);
      });
      const auto copy = sheaf::Get(more, 120s);
      wake.join();
      CHECK(copy == Values(8, kMany));
    }
  }
  CHECK(WaitUntil(20s, [&] { return cluster.AllEmpty(); }));
}

TEST_CASE("one value goes to three nodes at once") {
  constexpr size_t kMany = 64'000'000 / 8;
  Cluster cluster({.nodes = 4, .store = "256MiB"});
  for (size_t i = 1; i < 4; ++i) {  // Workers are up.
    sheaf::Get(
        sheaf::Task(WhereAmI).Place(sheaf::Strategy::Node(cluster.members[i].number)).Remote(),
        60s);
  }
  {
    const auto values = sheaf::Put(Values(9, kMany));
    const auto begin = Clock::now();
    std::vector<sheaf::ObjectRef<bool>> checks;
    for (size_t i = 1; i < 4; ++i) {
      checks.push_back(sheaf::Task(Check)
                           .Place(sheaf::Strategy::Node(cluster.members[i].number))
                           .Remote(values, 9, kMany));
    }
    for (const auto& check : checks) CHECK(sheaf::Get(check, 120s));
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::cout << "64 MB to three nodes: " << seconds << " s\n";
    for (size_t i = 0; i < 4; ++i) CHECK(cluster.StoreBytes(i) >= kMany * 8);
  }
  CHECK(WaitUntil(20s, [&] { return cluster.AllEmpty(); }));
}

TEST_CASE("a node dies") {
  Cluster cluster({.nodes = 3});
  const auto second = sheaf::Strategy::Node(cluster.members[1].number);
  const auto soft = sheaf::Strategy::Node(cluster.members[1].number, /*soft=*/true);
  const auto third = sheaf::Strategy::Node(cluster.members[2].number);
  SECTION("what only it had is made again") {
    const auto made = sheaf::Task(Make).Place(soft).Remote(1, kNumbers);
    CHECK(sheaf::Wait(std::vector{made}, 1, 60s, /*fetch_local=*/false).ready.size() == 1);
    cluster.Kill(1);
    CHECK(sheaf::Get(made, 60s) == Values(1, kNumbers));
  }
  SECTION("a copy elsewhere is as good") {
    const auto made = sheaf::Task(Make).Place(second).Retries(0).Remote(2, kNumbers);
    CHECK(sheaf::Get(sheaf::Task(Check).Place(third).Remote(made, 2, kNumbers), 60s));
    cluster.Kill(1);
    CHECK(sheaf::Get(made, 60s) == Values(2, kNumbers));
  }
  SECTION("what cannot be made again ends in a typed error") {
    const auto made = sheaf::Task(Make).Place(second).Retries(0).Remote(3, kNumbers);
    CHECK(sheaf::Wait(std::vector{made}, 1, 60s, /*fetch_local=*/false).ready.size() == 1);
    cluster.Kill(1);
    CHECK_THROWS_AS(sheaf::Get(made, 60s), sheaf::ObjectLostError);
  }
}

TEST_CASE("tasks go where their large arguments are") {
  Cluster cluster({.nodes = 2});
  const auto there = sheaf::Strategy::Node(cluster.members[1].number);
  const auto made = sheaf::Task(Make).Place(there).Remote(1, 4'000'000);
  CHECK(sheaf::Wait(std::vector{made}, 1, 60s, /*fetch_local=*/false).ready.size() == 1);
  CHECK(sheaf::Get(sheaf::Task(NodeOf).Remote(made), 60s) == cluster.members[1].number);
}

}  // namespace

int main(int argc, char** argv) { return loopback::Main(argc, argv); }
