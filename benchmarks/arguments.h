// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The arguments of a benchmark: "--name VALUE" and "--name", with --help and errors that name what
// is wrong.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {

class Arguments {
 public:
  // `purpose`: what the benchmark measures, for --help.
  Arguments(std::string program, std::string purpose)
      : program_(std::move(program)), purpose_(std::move(purpose)) {}

  // "--name": calls `set`.
  void Flag(std::string name, std::string help, std::function<void()> set) {
    options_.push_back({std::move(name), "", std::move(help), [set](std::string_view) {
                          set();
                          return true;
                        }});
  }
  // "--name VALUE": `set` says whether it can use the value. Of several the last counts.
  void Value(std::string name, std::string value, std::string help,
             std::function<bool(std::string_view)> set) {
    options_.push_back({std::move(name), std::move(value), std::move(help), std::move(set)});
  }
  void Text(std::string name, std::string value, std::string help, std::string& to) {
    Value(std::move(name), std::move(value), std::move(help),
          [&to](std::string_view text) { return !(to = text).empty(); });
  }
  // A number of at least `least`.
  template <class Number>
  void AtLeast(std::string name, std::string value, std::string help, Number least, Number& to) {
    Value(std::move(name), std::move(value), std::move(help), [&to, least](std::string_view text) {
      const std::string digits(text);
      char* end = nullptr;
      const double number = std::strtod(digits.c_str(), &end);
      to = static_cast<Number>(number);
      return !digits.empty() && *end == 0 && number >= static_cast<double>(least);
    });
  }

  // Ends the program after --help, and with code 2 and a message after what is not known or cannot
  // be used. A worker of the benchmark was started with the driver's, and leaves them alone.
  void Parse(int argc, char** argv) const {
    if (std::getenv("SHEAF_WORKER") != nullptr || std::getenv("SHEAF_WORKER_TEMPLATE") != nullptr)
      return;
    for (int i = 1; i < argc; ++i) {
      const std::string_view name = argv[i];
      if (name == "--help" || name == "-h") {
        std::cout << Help();
        std::exit(0);
      }
      const Option* const option = Find(name);
      if (option == nullptr) Refuse("'" + std::string(name) + "' is none of its options");
      if (option->value.empty()) {
        option->set("");
        continue;
      }
      if (++i == argc) Refuse(std::string(name) + " wants " + option->value);
      if (!option->set(argv[i])) {
        Refuse(std::string(name) + " '" + argv[i] + "': want " + option->help);
      }
    }
  }

 private:
  struct Option {
    std::string name, value, help;
    std::function<bool(std::string_view)> set;
  };

  const Option* Find(std::string_view name) const {
    for (const Option& option : options_) {
      if (option.name == name) return &option;
    }
    return nullptr;
  }
  std::string Help() const {
    std::string text = purpose_ + "\n\nUsage: " + program_ + " [OPTION...]\n\n";
    for (const Option& option : options_) {
      std::string left = "  " + option.name + (option.value.empty() ? "" : " " + option.value);
      left.resize(std::max<size_t>(left.size() + 2, 22), ' ');
      text += left + option.help + "\n";
    }
    return text;
  }
  [[noreturn]] void Refuse(const std::string& why) const {
    std::cerr << program_ << ": " << why << "\n\n" << Help();
    std::exit(2);
  }

  const std::string program_, purpose_;
  std::vector<Option> options_;
};

}  // namespace bench
