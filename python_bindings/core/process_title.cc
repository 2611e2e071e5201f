// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/process_title.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace sheaf::python {
namespace {

constexpr std::string_view kPrefix = "ray::";
// Fields of /proc/self/stat behind the name of the program, which may hold blanks: arg_start and
// arg_end, 48 and 49 in proc(5), which counts from 1 and the name as 2.
constexpr size_t kArgumentsBegin = 45, kArgumentsEnd = 46;

}  // namespace

ProcessTitle::ProcessTitle() {
  std::ifstream file("/proc/self/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  std::istringstream rest(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(rest), {}};
  if (fields.size() <= kArgumentsEnd) return;
  const uintptr_t begin = std::strtoull(fields[kArgumentsBegin].c_str(), nullptr, 10);
  const uintptr_t end = std::strtoull(fields[kArgumentsEnd].c_str(), nullptr, 10);
  if (begin == 0 || end <= begin + kPrefix.size()) return;
  begin_ = reinterpret_cast<char*>(begin);
  size_ = end - begin;
}

void ProcessTitle::Show(std::string_view name) {
  if (begin_ == nullptr || name == shown_) return;
  shown_ = name;
  std::memcpy(begin_, kPrefix.data(), kPrefix.size());
  const size_t length = std::min(name.size(), size_ - 1 - kPrefix.size());
  char* const end = std::copy_n(name.data(), length, begin_ + kPrefix.size());
  std::fill(end, begin_ + size_, '\0');
}

}  // namespace sheaf::python
