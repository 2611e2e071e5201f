// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Names of functions and types that are the same in every process and from every compiler.
#pragma once

#include <string>
#include <string_view>
#include <typeinfo>

namespace sheaf::inline v1::internal {

// What stands after `mark` in a __PRETTY_FUNCTION__ of g++ ("... [with T = int; std::string =
// ...]") or clang ("... [T = int]").
inline std::string ArgumentText(std::string_view text, std::string_view mark) {
  text.remove_prefix(text.find(mark) + mark.size());
  const size_t semicolon = text.find(';');
  std::string name(
      text.substr(0, semicolon == std::string_view::npos ? text.rfind(']') : semicolon));
  const auto replace = [&name](std::string_view what, std::string_view by) {
    for (size_t at = name.find(what); at != std::string::npos; at = name.find(what))
      name.replace(at, what.size(), by);
  };
  replace("{anonymous}", "(anonymous namespace)");
  replace("[abi:cxx11]", "");
  replace("sheaf::v1::", "sheaf::");
  replace("std::__cxx11::", "std::");
  replace("std::basic_string<char>", "std::string");
  return name;
}
// "app::Square", "app::Counter::Add": of a function or member function.
template <auto kFunction>
std::string NameOf() {
  std::string name = ArgumentText(__PRETTY_FUNCTION__, "kFunction = ");
  if (name.starts_with('&')) name.erase(0, 1);
  return name;
}
// "app::Counter".
template <class T>
std::string TypeName() {
  return ArgumentText(__PRETTY_FUNCTION__, "T = ");
}
// A name plus the types, so that overloads differ and callers with other types find nothing rather
// than something else.
template <class Signature>
std::string KeyOf(std::string_view name) {
  return std::string(name) + "#" + typeid(Signature).name();
}

}  // namespace sheaf::inline v1::internal
