// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/core.h"

#include "api/registry.h"

#include <catch2/catch.hpp>

#include "sheaf/actor.h"
#include "sheaf/internal/names.h"

namespace app {

int Square(int x) { return x * x; }
std::string Text(const std::string& text) { return text; }
template <class T>
T Twice(T x) {
  return x + x;
}
SHEAF_REMOTE(Square, Text, Twice<int>, Twice<double>);
SHEAF_REMOTE(Square);  // Again, as another file might.

struct Base {
  int Ping() const { return 1; }
};
class Counter : public Base {
 public:
  explicit Counter(int start) : value_(start) {}
  int Add(int n) noexcept { return value_ += n; }
  int Over(int) { return 1; }
  int Over(double) { return 2; }
  sheaf::Async<int> Wait() { co_return value_; }

 private:
  int value_;
};
Counter Make(int a, int b) { return Counter(a + b); }
SHEAF_ACTOR(Counter, sheaf::Constructor<int>, Make, &Counter::Add,
            sheaf::InGroup<"io">(&Counter::Ping),
            static_cast<int (Counter::*)(int)>(&Counter::Over),
            static_cast<int (Counter::*)(double)>(&Counter::Over), &Counter::Wait);

int NotRegistered(int x) { return x; }

}  // namespace app

namespace {

using sheaf::internal::FindFunction;
using sheaf::internal::FunctionRecord;

TEST_CASE("functions are found by names that are the same in every process") {
  const FunctionRecord* square = FindFunction("app::Square#FiiE");
  REQUIRE(square != nullptr);
  CHECK(square->name == "app::Square");
  CHECK(square->kind == FunctionRecord::Kind::kFunction);
  CHECK(sheaf::internal::PointerList<int (*)(int)>::Find(app::Square) == square);
  CHECK(FindFunction("app::Square") == nullptr);
  CHECK(FindFunction("app::Twice<int>#FiiE") != FindFunction("app::Twice<double>#FddE"));
  CHECK(sheaf::internal::PointerList<std::string (*)(const std::string&)>::Find(app::Text)->name ==
        "app::Text");
}

TEST_CASE("methods are found by class and type, with their groups") {
  const FunctionRecord* ping = FindFunction("app::Counter::Ping#FivE");
  REQUIRE(ping != nullptr);
  CHECK(ping->group == "io");
  CHECK(FindFunction("app::Counter::Add#FiiE")->kind == FunctionRecord::Kind::kMethod);
  CHECK(FindFunction("app::Counter::Over#FiiE") != nullptr);
  CHECK(FindFunction("app::Counter::Over#FidE") != nullptr);
  const FunctionRecord* make = FindFunction("app::Make#FN3app7CounterEiiE");
  REQUIRE(make != nullptr);
  CHECK(make->kind == FunctionRecord::Kind::kConstructor);
  CHECK(make->is_async);  // Wait is a coroutine.
  CHECK(FindFunction("app::Counter()#FviE")->class_key == make->class_key);
}

// Of a type that no registered function has, too.
char NoSuchType(char c) { return c; }

TEST_CASE("a function that was not registered is refused with the remedy") {
  CHECK_THROWS_WITH(sheaf::Task(app::NotRegistered), Catch::Contains("SHEAF_REMOTE"));
  CHECK_THROWS_WITH(sheaf::Task(NoSuchType), Catch::Contains("char(char)"));
}

TEST_CASE("two functions of one name are reported") {
  CHECK(sheaf::internal::RegistrationErrors().empty());
  static FunctionRecord other;
  other.key = "app::Square#FiiE";
  other.name = "app::Square";
  sheaf::internal::Register(&other);
  CHECK_THAT(sheaf::internal::RegistrationErrors(),
             Catch::Contains("two functions are registered as 'app::Square'"));
  CHECK(FindFunction("app::Square#FiiE") != &other);
}

}  // namespace
