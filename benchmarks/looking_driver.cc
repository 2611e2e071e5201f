// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A driver for bench_looking.py: says as JSON which rows it has, and then answers each line,
// the name of a row, with its rate.
#include <sheaf/sheaf.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kTurn = 0.25;  // Seconds.
constexpr int kBatch = 1000;

int Nothing(int x) { return x; }
class Echo {
 public:
  Echo() = default;
  int Call(int x) { return x; }
};

SHEAF_REMOTE(Nothing);
SHEAF_ACTOR(Echo, sheaf::Constructor<>, &Echo::Call);

template <class Call>
void AddRows(const std::string& name, Call& call,
             std::map<std::string, std::function<int()>>& rows) {
  rows[name + ", sync"] = [&] {
    sheaf::Get(call.Remote(1));
    return 1;
  };
  rows[name + ", in flight"] = [&] {
    std::vector<sheaf::ObjectRef<int>> refs;
    for (int i = 0; i < kBatch; ++i) refs.push_back(call.Remote(i));
    sheaf::Get(refs);
    return kBatch;
  };
}

double RateOf(const std::function<int()>& run) {
  const Clock::time_point begin = Clock::now();
  double count = 0, seconds = 0;
  while (seconds < kTurn) {
    count += run();
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  return count / seconds;
}

}  // namespace

int main(int argc, char** argv) {
  sheaf::InitOptions options;
  options.cpus = 2;
  sheaf::Init(argc, argv, options);
  {
    auto task = sheaf::Task(Nothing);
    auto echo = sheaf::Actor<Echo>().Remote();
    auto call = echo.Task(&Echo::Call);
    std::map<std::string, std::function<int()>> rows;
    AddRows("C++ task", task, rows);
    AddRows("C++ actor call", call, rows);
    std::string names;
    for (const auto& [name, run] : rows) names += (names.empty() ? "\"" : ", \"") + name + "\"";
    std::printf("{\"rows\": [%s]}\n", names.c_str());
    std::fflush(stdout);
    for (std::string row; std::getline(std::cin, row);) {
      std::printf("%.1f\n", RateOf(rows.at(row)));
      std::fflush(stdout);
    }
  }
  sheaf::Shutdown();
}
