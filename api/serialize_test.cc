// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "sheaf/serialize.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <msgpack.hpp>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <unordered_map>

namespace {

using sheaf::Deserialize;
using sheaf::SerializationError;
using sheaf::Serialize;

enum class Colour : uint8_t { kRed = 1, kBlue = 200 };

struct Point {
  double x = 0;
  double y = 0;
  friend bool operator==(const Point&, const Point&) = default;
};
struct Nothing {
  friend bool operator==(const Nothing&, const Nothing&) = default;
};
struct Tree {
  std::string name;
  std::vector<Tree> children;
  friend bool operator==(const Tree&, const Tree&) = default;
};
struct Everything {
  bool yes = false;
  int8_t small = 0;
  uint64_t large = 0;
  float single = 0;
  Colour colour = Colour::kRed;
  std::string text;
  std::vector<std::string> texts;
  std::vector<bool> bits;
  std::vector<double> numbers;
  std::array<int, 3> three{};
  std::optional<std::optional<int>> maybe;
  std::variant<std::monostate, int, Point> choice;
  std::tuple<int, std::string> pair;
  std::map<std::string, Point> map;
  std::unordered_map<int, std::vector<float>> table;
  std::set<int> set;
  std::deque<Point> points;
  std::chrono::milliseconds duration{};
  Nothing nothing;
  Tree tree;
  friend bool operator==(const Everything&, const Everything&) = default;
};

// A class with a constructor and private state.
class Temperature {
 public:
  explicit Temperature(double kelvin) : kelvin_(kelvin) {}
  double kelvin() const { return kelvin_; }
  std::vector<double> ToSheaf() const { return std::vector<double>(100, kelvin_); }
  static Temperature FromSheaf(const std::vector<double>& form) { return Temperature(form.at(99)); }

 private:
  double kelvin_;
};

template <class T>
void CheckSurvives(const T& value) {
  CHECK(Deserialize<T>(Serialize(value)) == value);
}

std::string Bytes(std::initializer_list<int> bytes) {
  return std::string(bytes.begin(), bytes.end());
}

TEST_CASE("numbers survive at the ends of their ranges") {
  const auto ends = []<class T>(T) {
    CheckSurvives(std::numeric_limits<T>::min());
    CheckSurvives(std::numeric_limits<T>::lowest());
    CheckSurvives(std::numeric_limits<T>::max());
    CheckSurvives(T{0});
    CheckSurvives(T{1});
  };
  ends(int8_t());
  ends(int16_t());
  ends(int32_t());
  ends(int64_t());
  ends(uint8_t());
  ends(uint16_t());
  ends(uint32_t());
  ends(uint64_t());
  ends(char());
  ends(float());
  ends(double());
  CheckSurvives(std::byte{200});
  CheckSurvives(-1);
  CheckSurvives(-33LL);
  CheckSurvives(true);
  CheckSurvives(Colour::kBlue);
  CHECK(std::isnan(Deserialize<double>(Serialize(std::nan("")))));
}

TEST_CASE("small numbers take one byte, in msgpack's own form") {
  CHECK(Serialize(7) == Bytes({7}));
  CHECK(Serialize(-1) == Bytes({0xff}));
  CHECK(Serialize(true) == Bytes({0xc3}));
  CHECK(Serialize(1.5).size() == 9);
}

TEST_CASE("integers of one width are read as another when they fit, and refused when they do not") {
  CHECK(Deserialize<int64_t>(Serialize(uint8_t{200})) == 200);
  CHECK(Deserialize<uint16_t>(Serialize(int64_t{65535})) == 65535);
  CHECK(Deserialize<double>(Serialize(3)) == 3.0);
  CHECK_THROWS_AS(Deserialize<int8_t>(Serialize(200)), SerializationError);
  CHECK_THROWS_AS(Deserialize<int8_t>(Serialize(127 + 1)), SerializationError);
  CHECK_THROWS_AS(Deserialize<uint32_t>(Serialize(-1)), SerializationError);
  CHECK_THROWS_AS(Deserialize<int64_t>(Serialize(UINT64_MAX)), SerializationError);
  CHECK_THROWS_AS(Deserialize<int>(Serialize(1.5)), SerializationError);
  CHECK_THROWS_AS(Deserialize<bool>(Serialize(1)), SerializationError);
}

TEST_CASE("a struct of everything survives without a macro") {
  Everything all;
  CheckSurvives(all);
  all = {true,
         -5,
         UINT64_MAX,
         1.5f,
         Colour::kBlue,
         std::string(300, 'x'),
         {"a", "", std::string(70'000, 'b')},
         {true, false, true},
         std::vector<double>(1000, 0.25),
         {1, 2, 3},
         std::optional<int>(),
         Point{1, 2},
         {4, "four"},
         {{"p", {1, 2}}, {"q", {3, 4}}},
         {{1, std::vector<float>(500, 1.f)}, {2, {}}},
         {3, 1, 2},
         {{1, 2}, {3, 4}},
         std::chrono::milliseconds(1234),
         {},
         {"root", {{"leaf", {}}, {"branch", {{"twig", {}}}}}}};
  CheckSurvives(all);
  all.maybe = std::optional<std::optional<int>>(std::in_place, 3);
  all.choice = 5;
  CheckSurvives(all);
}

TEST_CASE("containers of all kinds survive") {
  CheckSurvives(std::vector<std::vector<double>>{{1, 2}, {}, std::vector<double>(999, 3)});
  CheckSurvives(std::list<std::string>{"a", "b"});
  CheckSurvives(std::multiset<int>{1, 1, 2});
  CheckSurvives(std::map<Colour, std::tuple<>>{{Colour::kRed, {}}});
  CheckSurvives(std::vector<Nothing>(5));
  CheckSurvives(std::pair<int, std::string>{1, "one"});
  CheckSurvives(std::vector<std::byte>(100'000, std::byte{7}));
  const auto shared =
      Deserialize<std::shared_ptr<Point>>(Serialize(std::make_shared<Point>(Point{1, 2})));
  CHECK(*shared == Point{1, 2});
  CHECK(Deserialize<std::unique_ptr<int>>(Serialize(std::unique_ptr<int>())) == nullptr);
}

TEST_CASE("a class says itself how it travels") {
  CHECK(Deserialize<Temperature>(Serialize(Temperature(293))).kelvin() == 293);
  const auto many =
      Deserialize<std::vector<Temperature>>(Serialize(std::vector<Temperature>(3, Temperature(5))));
  CHECK(many.size() == 3);
  CHECK(many[2].kelvin() == 5);
}

TEST_CASE("arrays of numbers lie aligned beside the rest, and are viewed without a copy") {
  std::vector<double> numbers(10'000);
  std::iota(numbers.begin(), numbers.end(), 0.);
  const std::string bytes = Serialize(numbers);
  CHECK(bytes.size() == 64 + 80'000);
  CHECK(std::memcmp(bytes.data() + 64, numbers.data(), 80'000) == 0);

  alignas(64) static char aligned[64 + 80'000];
  std::memcpy(aligned, bytes.data(), bytes.size());
  sheaf::internal::Decoder in({aligned, bytes.size()}, nullptr);
  const auto span = sheaf::internal::ReadSpan<double>(in);
  CHECK(static_cast<const void*>(span.span.data()) == aligned + 64);
  CHECK(span.copy.empty());

  SECTION("where they are not aligned they are copied") {
    std::memmove(aligned + 1, bytes.data(), bytes.size() - 1);
    sheaf::internal::Decoder moved({aligned + 1, bytes.size() - 1}, nullptr);
    CHECK_THROWS_AS(sheaf::internal::ReadSpan<double>(moved),
                    SerializationError);  // One byte too short.
    const std::string small = " " + Serialize(std::vector<double>{1, 2, 3});
    sheaf::internal::Decoder odd({small.data() + 1, small.size() - 1}, nullptr);
    const auto copied = sheaf::internal::ReadSpan<double>(odd);
    CHECK(std::vector<double>(copied.span.begin(), copied.span.end()) ==
          std::vector<double>{1, 2, 3});
  }
}

TEST_CASE("an array built in place reads as any other") {
  std::vector<char> bytes(sheaf::internal::kArrayHeadBytes + 3 * sizeof(float));
  sheaf::internal::WriteArrayHead(bytes.data(), sheaf::internal::NumberKind::kFloat32,
                                  3 * sizeof(float));
  const float values[] = {1, 2, 3};
  std::memcpy(bytes.data() + sheaf::internal::kArrayHeadBytes, values, sizeof(values));
  CHECK(Deserialize<std::vector<float>>({bytes.data(), bytes.size()}) ==
        std::vector<float>{1, 2, 3});
  CHECK(Deserialize<sheaf::Array<float>>({bytes.data(), bytes.size()})[2] == 3);
  CHECK_THROWS_AS(Deserialize<std::vector<double>>({bytes.data(), bytes.size()}),
                  SerializationError);
}

TEST_CASE("what msgpack-cxx writes is read, and the other way round") {
  const std::map<std::string, std::vector<std::tuple<int64_t, double, std::string, bool>>> value = {
      {"a", {{-5, 1.5, "x", true}, {1LL << 40, -0.0, std::string(1000, 'y'), false}}}, {"b", {}}};
  msgpack::sbuffer theirs;
  msgpack::pack(theirs, value);
  CHECK(Deserialize<std::remove_const_t<decltype(value)>>({theirs.data(), theirs.size()}) == value);
  const std::string ours = Serialize(value);
  std::remove_const_t<decltype(value)> back;
  msgpack::unpack(ours.data(), ours.size()).get().convert(back);
  CHECK(back == value);
  // Lists of numbers of another language.
  msgpack::sbuffer list;
  msgpack::packer<msgpack::sbuffer>(list).pack_array(3).pack(1).pack(-2).pack(3.5);
  CHECK(Deserialize<std::vector<double>>({list.data(), list.size()}) ==
        std::vector<double>{1, -2, 3.5});
}

TEST_CASE("values inside values have a limit") {
  Tree deep;
  for (int i = 0; i < 500; ++i) {
    Tree above;
    above.children.push_back(std::move(deep));
    deep = std::move(above);
  }
  CHECK_THROWS_AS(Serialize(deep), SerializationError);
  std::string bytes;
  for (int i = 0; i < 100'000; ++i) bytes += Bytes({0x92, 0xa0, 0x91});
  CHECK_THROWS_AS(Deserialize<Tree>(bytes), SerializationError);
}

TEST_CASE("bytes that are something else are refused") {
  CHECK_THROWS_AS(Deserialize<int>(""), SerializationError);
  CHECK_THROWS_AS(Deserialize<int>(Bytes({1, 2})), SerializationError);
  CHECK_THROWS_AS(Deserialize<std::string>(Serialize(1)), SerializationError);
  CHECK_THROWS_AS(Deserialize<Point>(Serialize(std::tuple<double>(1))), SerializationError);
  CHECK_THROWS_AS(
      (Deserialize<std::variant<int, double>>(Serialize(std::variant<int, double, bool>(true)))),
      SerializationError);
  CHECK_THROWS_AS(Deserialize<std::string>(Bytes({0xdb, 0xff, 0xff, 0xff, 0xff, 'x'})),
                  SerializationError);
  // A list that claims four billion elements, a map that claims two.
  CHECK_THROWS_AS(Deserialize<std::vector<Point>>(Bytes({0xdd, 0xff, 0xff, 0xff, 0xff})),
                  SerializationError);
  CHECK_THROWS_AS((Deserialize<std::map<int, int>>(Bytes({0xdf, 0x7f, 0xff, 0xff, 0xff, 1, 2}))),
                  SerializationError);
  CHECK_THROWS_AS(Deserialize<std::vector<int>>(Serialize(std::vector<double>(5))),
                  SerializationError);
}

TEST_CASE("no change of any byte of a value does more than an error") {
  Everything all;
  all.large = 70'000;
  all.text = "hello";
  all.texts = {"a", "b"};
  all.numbers = std::vector<double>(100, 0.5);
  all.choice = Point{1, 2};
  all.map = {{"p", {1, 2}}};
  all.table = {{1, std::vector<float>(200, 1.f)}};
  all.tree = {"root", {{"leaf", {}}}};
  const std::string good = Serialize(all);
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bad = good;
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < changes; ++i)
      bad[random() % std::min<size_t>(bad.size(), 400)] = static_cast<char>(random());
    if (random() % 4 == 0) bad.resize(random() % bad.size());
    try {
      (void)Deserialize<Everything>(bad);
    } catch (const SerializationError&) {
      ++refused;
    }
  }
  CHECK(refused > 10'000);
}

TEST_CASE("which types can travel is known at compile time") {
  STATIC_REQUIRE(sheaf::Serializable<Everything>);
  STATIC_REQUIRE(sheaf::Serializable<std::vector<std::optional<Tree>>>);
  STATIC_REQUIRE_FALSE(sheaf::Serializable<int*>);
  STATIC_REQUIRE_FALSE(sheaf::Serializable<const int>);
  STATIC_REQUIRE_FALSE(sheaf::Serializable<std::vector<int*>>);
  STATIC_REQUIRE_FALSE(sheaf::Serializable<std::mutex>);
  STATIC_REQUIRE_FALSE(sheaf::Serializable<std::function<void()>>);
  STATIC_REQUIRE_FALSE(sheaf::Serializable<long double>);
}

}  // namespace
