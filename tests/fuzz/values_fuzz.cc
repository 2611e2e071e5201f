// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Values from peers: arguments, results and objects, as C++ programs read them.
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "sheaf/serialize.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

struct Inner {
  int number = 0;
  std::string text;
};
struct Outer {
  std::vector<Inner> inners;
  std::map<std::string, double> map;
  std::optional<uint64_t> maybe;
  std::vector<double> numbers;
  std::tuple<bool, char, int8_t> tuple;
};

template <class T>
void Read(const std::string& bytes) {
  try {
    (void)sheaf::Deserialize<T>(bytes);
  } catch (const sheaf::Error&) {
  }
}

}  // namespace

std::vector<std::string> fuzz::Seeds() {
  Outer outer;
  outer.inners = {{1, "one"}, {2, "two"}};
  outer.map = {{"a", 1.5}, {"b", 2.5}};
  outer.maybe = 7;
  outer.numbers = {1, 2, 3};
  std::vector<std::string> seeds;
  seeds.push_back("0" + sheaf::Serialize(outer));
  seeds.push_back("1" + sheaf::Serialize(std::vector<double>{1, 2, 3, 4}));
  seeds.push_back("2" +
                  sheaf::Serialize(std::vector<std::string>{"a", "bc", std::string(300, 'x')}));
  seeds.push_back("3" + sheaf::Serialize(std::string("text")));
  seeds.push_back("4" + sheaf::Serialize(int64_t{-5}));
  seeds.push_back(
      "5" + sheaf::Serialize(std::map<int, std::vector<std::vector<int>>>{{1, {{1}, {2, 3}}}}));
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const uint8_t which = input.Byte();
  const std::string bytes = input.Rest();
  switch (which % 8) {
    case 0:
      Read<Outer>(bytes);
      break;
    case 1:
      Read<std::vector<double>>(bytes);
      break;
    case 2:
      Read<std::vector<std::string>>(bytes);
      break;
    case 3:
      Read<std::string>(bytes);
      break;
    case 4:
      Read<int64_t>(bytes);
      break;
    case 5:
      Read<std::map<int, std::vector<std::vector<int>>>>(bytes);
      break;
    case 6:
      Read<std::vector<bool>>(bytes);
      break;
    default:
      Read<std::tuple<int, std::string, std::optional<Inner>>>(bytes);
  }
  return 0;
}
