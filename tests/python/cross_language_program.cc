// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A driver in C++ that calls Python, for test_cross_language.py: prints one line for each thing it
// tried. Its workers run C++ or become Python.
#include <sheaf/sheaf.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "cross_language.h"

namespace {

constexpr char kModule[] = "cross_language_functions";

void Try(const char* what, const std::function<std::string()>& body) {
  std::string words;
  try {
    words = body();
  } catch (const sheaf::TaskError& error) {
    words =
        "TaskError " + error.function() + " " + error.cause_type() + ": " + error.cause_message();
  } catch (const sheaf::Error& error) {
    words = std::string("Error ") + std::to_string(static_cast<int>(error.kind())) + ": " +
            error.what();
  }
  std::replace(words.begin(), words.end(), '\n', '|');
  std::printf("%s = %s\n", what, words.c_str());
  std::fflush(stdout);
}

template <class T>
std::string Text(const std::vector<T>& numbers) {
  std::string text;
  for (const T number : numbers) text += std::to_string(static_cast<int64_t>(number)) + " ";
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  sheaf::InitOptions options;
  options.cpus = 4;
  options.log_to_driver = false;
  if (const char* python = getenv("TEST_PYTHON")) options.python = python;
  sheaf::Init(argc, argv, options);
  using sheaf::Get;
  using sheaf::PyTask;

  Try("int", [] { return std::to_string(Get(PyTask<int>(kModule, "add").Remote(2, 3))); });
  Try("double", [] { return std::to_string(Get(PyTask<double>(kModule, "add").Remote(0.5, 1))); });
  Try("text",
      [] { return Get(PyTask<std::string>(kModule, "upper").Remote("gr\xc3\xbc\xc3\x9f")); });
  Try("bytes", [] {
    return Text(Get(PyTask<std::vector<uint8_t>>(kModule, "reverse_bytes")
                        .Remote(std::vector<uint8_t>{1, 2, 3})));
  });
  Try("array", [] {
    const std::vector<double> numbers(10000, 0.5);
    return std::to_string(Get(PyTask<double>(kModule, "total").Remote(numbers)));
  });
  Try("array back", [] {
    const sheaf::Array<int64_t> numbers =
        Get(PyTask<sheaf::Array<int64_t>>(kModule, "squares").Remote(1000));
    return std::to_string(numbers.size()) + " " + std::to_string(numbers[999]);
  });
  Try("dict", [] {
    const auto counts = Get(PyTask<std::map<std::string, int>>(kModule, "count")
                                .Remote(std::vector<std::string>{"a", "b", "a"}));
    return std::to_string(counts.at("a")) + std::to_string(counts.at("b"));
  });
  Try("none", [] {
    Get(PyTask(kModule, "nothing").Remote());
    return std::string("nothing");
  });
  Try("reference", [] {
    const sheaf::ObjectRef<int> five = PyTask<int>(kModule, "add").Remote(2, 3);
    return std::to_string(Get(PyTask<int>(kModule, "add").Remote(five, sheaf::Put(10))));
  });
  Try("to C++ and back", [] {
    const sheaf::ObjectRef<int> five = PyTask<int>(kModule, "add").Remote(2, 3);
    return std::to_string(Get(sheaf::Task(&app::SquareElsewhere).Remote(five)));
  });
  Try("stream", [] {
    std::string text;
    sheaf::ObjectStream<int> items = PyTask<int>(kModule, "count_up").RemoteStream(3);
    while (const auto item = items.Next()) text += std::to_string(Get(*item));
    return text;
  });
  Try("C++ from Python",
      [] { return std::to_string(Get(PyTask<int>(kModule, "square_in_cpp").Remote(7))); });
  Try("Python from Python",
      [] { return std::to_string(Get(PyTask<int>(kModule, "add_elsewhere").Remote(3, 4))); });
  Try("exception",
      [] { return std::to_string(Get(PyTask<int>(kModule, "refuse").Remote("no such key"))); });
  Try("no module", [] { return std::to_string(Get(PyTask<int>("no_such_module", "f").Remote())); });
  Try("no function", [] { return std::to_string(Get(PyTask<int>(kModule, "absent").Remote())); });
  Try("too many arguments",
      [] { return std::to_string(Get(PyTask<int>(kModule, "add").Remote(1, 2, 3))); });
  Try("result that does not travel", [] {
    Get(PyTask(kModule, "a_set").Remote());
    return std::string("nothing");
  });
  Try("result of another type",
      [] { return std::to_string(Get(PyTask<int>(kModule, "upper").Remote("x"))); });
  Try("exit", [] { return std::to_string(Get(PyTask<int>(kModule, "die").Retries(0).Remote())); });

  Try("the lines of docs/cross_language.md", [] {
    sheaf::ObjectRef<double> mean =
        sheaf::PyTask<double>("statistics", "fmean").Remote(std::vector<double>{1, 2, 6});
    sheaf::PyActorHandle letters =
        sheaf::PyActor("collections", "Counter").Name("letters").Remote("hello");
    int count = sheaf::Get(letters.Task<int>("total").Remote());
    return std::to_string(Get(mean)) + " " + std::to_string(count);
  });
  Try("actor", [] {
    const sheaf::PyActorHandle counter = sheaf::PyActor(kModule, "Counter").Remote(10);
    Get(counter.Task("add").Remote(5));
    return std::to_string(Get(counter.Task<int>("add").Remote(1)));
  });
  Try("actor by name", [] {
    const sheaf::PyActorHandle made = sheaf::PyActor(kModule, "Counter").Name("py").Remote(1);
    Get(made.Created());
    return std::to_string(Get(sheaf::GetPyActor("py").Task<int>("add").Remote(1)));
  });
  Try("actor of C++ by name", [] {
    const auto made = sheaf::Actor<app::Counter>().Name("cpp").Remote(1);
    Get(made.Created());
    sheaf::GetPyActor("cpp");
    return std::string("a handle");
  });
  Try("actor that raises", [] {
    const sheaf::PyActorHandle counter = sheaf::PyActor(kModule, "Counter").Remote(0);
    return std::to_string(Get(counter.Task<int>("fail").Remote()));
  });
  Try("no method", [] {
    const sheaf::PyActorHandle counter = sheaf::PyActor(kModule, "Counter").Remote(0);
    return std::to_string(Get(counter.Task<int>("absent").Remote()));
  });
  Try("actor that cannot be made", [] {
    const sheaf::PyActorHandle counter = sheaf::PyActor(kModule, "Counter").Remote("ten");
    return std::to_string(Get(counter.Task<int>("add").Remote(1)));
  });
  Try("killed actor", [] {
    const sheaf::PyActorHandle counter = sheaf::PyActor(kModule, "Counter").Remote(0);
    Get(counter.Created());
    sheaf::Kill(counter);
    return std::to_string(Get(counter.Task<int>("add").Remote(1)));
  });
  sheaf::Shutdown();
}
