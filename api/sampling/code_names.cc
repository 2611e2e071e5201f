// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/sampling/code_names.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/debugging/symbolize.h"

namespace sheaf::inline v1::internal {
namespace {

// absl::Symbolize leaves files of programs open, also for processes that user code starts.
class WithoutHeirs {
 public:
  explicit WithoutHeirs(const char* file) {
    // Of a program argv[0], which may name no file from here.
    if (std::strcmp(file, program_invocation_name) == 0) file = "/proc/self/exe";
    if (stat(file, &file_) != 0 || file_.st_nlink == 0) file_.st_ino = 0;
    next_ = open("/dev/null", O_RDONLY | O_CLOEXEC);  // The file will have this number, as a rule.
    if (next_ >= 0) close(next_);
  }
  ~WithoutHeirs() {
    struct stat now{};
    if (next_ >= 0 && file_.st_ino != 0 && fstat(next_, &now) == 0 && now.st_dev == file_.st_dev &&
        now.st_ino == file_.st_ino)
      fcntl(next_, F_SETFD, FD_CLOEXEC);
  }
  WithoutHeirs(const WithoutHeirs&) = delete;
  WithoutHeirs& operator=(const WithoutHeirs&) = delete;
  bool is_there() const { return file_.st_ino != 0; }

 private:
  struct stat file_{};
  int next_ = -1;
};

}  // namespace

std::string WithoutTemplates(std::string_view name) {
  std::string plain;
  int depth = 0;
  for (const char c : name) {
    depth += c == '<';
    if (depth == 0) plain += c;
    depth -= c == '>';
  }
  if (plain.ends_with("()")) plain.resize(plain.size() - 2);
  return plain;
}

const CodeNames::Name& CodeNames::Of(uintptr_t address) {
  if (const auto known = names_.find(address); known != names_.end()) return known->second;
  static const Name& none = *new Name;
  const void* const at = reinterpret_cast<const void*>(address);
  Dl_info found{};
  if (dladdr(at, &found) == 0 || found.dli_fname == nullptr) return none;
  const std::string_view path = found.dli_fname;
  const std::string file(path.substr(path.rfind('/') + 1));
  const auto [library, is_new] = libraries_.try_emplace(file);
  if (is_new) library->second = {file, writer_.FrameOf(file, path, 0), /*is_library=*/true};
  const Nanos begin = MonotonicNow();
  if (!MayLook(begin)) return library->second;
  if (names_.size() >= kMost) names_.clear();
  Name& name = names_[address] = library->second;
  std::array<char, 1024> text;
  if (const WithoutHeirs opened(found.dli_fname);
      opened.is_there() && absl::Symbolize(at, text.data(), static_cast<int>(text.size()))) {
    name.function = WithoutTemplates(text.data());
    name.frame = writer_.FrameOf(name.function, path, 0);
    name.is_library = false;
  }
  looked_for_ += MonotonicNow() - begin;
  return name;
}

}  // namespace sheaf::inline v1::internal
