// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Functions and an actor of C++ for test_cross_language.py: a library, and part of the program that
// calls Python.
#include "cross_language.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <stdexcept>

namespace app {

int Square(int x) { return x * x; }
double Sum(std::span<const double> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}
std::vector<float> Ramp(int64_t count) {
  std::vector<float> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  return numbers;
}
std::map<std::string, std::vector<int64_t>> Counts(const std::vector<std::string>& words) {
  std::map<std::string, std::vector<int64_t>> counts;
  for (size_t i = 0; i < words.size(); ++i) counts[words[i]].push_back(static_cast<int64_t>(i));
  return counts;
}
std::tuple<bool, uint64_t, double, std::string, std::vector<uint8_t>> Echo(
    bool flag, uint64_t number, double real, const std::string& text, std::vector<uint8_t> bytes) {
  return {flag, number, real, text, std::move(bytes)};
}
std::monostate Nothing(std::monostate nothing) { return nothing; }
int At(const std::vector<int>& list, size_t index) { return list.at(index); }
sheaf::Generator<int> UpTo(int count) {
  for (int i = 0; i < count; ++i) co_yield i;
}
void Crash() { abort(); }
int64_t Pid() { return getpid(); }
std::string Twice(const std::string& text) { return text + text; }
int Overloaded(int x) { return x; }
int Overloaded(int x, int y) { return x + y; }

[[gnu::noinline]] double Turn(double seconds) {
  double x = 0;
  // Of CPU, which is what samples count, whatever else the machine does.
  const std::clock_t end = std::clock() + static_cast<std::clock_t>(seconds * CLOCKS_PER_SEC);
  while (std::clock() < end) {
    for (int i = 0; i < 100'000; ++i) x = std::sqrt(x + i);
  }
  return x;
}
double Burn(double seconds) { return Turn(seconds) + 1; }

SHEAF_REMOTE(Burn, Square, Sum, Ramp, Counts, Echo, Nothing, At, UpTo, Crash, Pid, Twice);
SHEAF_REMOTE(static_cast<int (*)(int)>(Overloaded), static_cast<int (*)(int, int)>(Overloaded));

// Calls of C++ from a C++ worker, in a job of either language; and of Python.
int SquareElsewhere(int x) { return sheaf::Get(sheaf::Task(Square).Remote(x)); }
std::string UpperInPython(const std::string& text) {
  return sheaf::Get(sheaf::PyTask<std::string>("cross_language_functions", "upper").Remote(text));
}
SHEAF_REMOTE(SquareElsewhere, UpperInPython);

Counter::Counter(int start) : value_(start) {
  if (start < 0) throw std::invalid_argument("a counter starts at 0 or more");
}
Counter Counter::Between(int low, int high) { return Counter((low + high) / 2); }
int Counter::Add(int n) { return value_ += n; }
int Counter::Value() const { return value_; }
void Counter::Fail() const { throw std::runtime_error("as it was told"); }

}  // namespace app
