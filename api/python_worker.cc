// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/python_worker.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/escaping.h"
#include "base/config.h"
#include "base/environment.h"
#include "base/mutex.h"

namespace sheaf::inline v1::internal {
namespace {

constexpr char kPythonEntry[] = "@python";
constexpr char kCppEntry[] = "@cpp";
constexpr char kPythonModule[] = "sheaf._worker.of_cpp";

struct Languages {
  Mutex mutex;
  std::string interpreter ABSL_GUARDED_BY(mutex) = "python3";
  // The entries that begin with '@' of this worker's environment.
  std::map<std::string, std::string> own ABSL_GUARDED_BY(mutex);
};
Languages& TheLanguages() {
  static Languages& languages = *new Languages;
  return languages;
}

}  // namespace

void TakeWorkerLanguage() {
  const char* const hexadecimal = getenv(kRuntimeEnvironmentVariable);
  if (getenv(kWorkerVariable) == nullptr || hexadecimal == nullptr) return;
  absl::StatusOr<RuntimeEnvironment> environment =
      DecodeEnvironment(absl::HexStringToBytes(hexadecimal));
  if (!environment.ok()) return;
  const auto python = environment->others.find(kPythonEntry);
  if (python != environment->others.end()) {
    const std::string& program = python->second;
    execlp(program.c_str(), program.c_str(), "-m", kPythonModule, nullptr);
    std::fprintf(stderr,
                 "sheaf: the Python interpreter '%s' cannot be started (%s): install it, or name "
                 "another one in InitOptions::python\n",
                 program.c_str(), std::strerror(errno));
    _exit(1);
  }
  Languages& languages = TheLanguages();
  const MutexLock lock(languages.mutex);
  languages.own = std::move(environment->others);
}

void SetPythonInterpreter(std::string name) {
  Languages& languages = TheLanguages();
  const MutexLock lock(languages.mutex);
  languages.interpreter = std::move(name);
}

std::map<std::string, std::string> LanguageEnvironment(bool python) {
  Languages& languages = TheLanguages();
  const MutexLock lock(languages.mutex);
  const auto cpp = languages.own.find(kCppEntry);
  const bool job_of_python = cpp != languages.own.end();
  if (python && !job_of_python) return {{kPythonEntry, languages.interpreter}};
  if (!python && job_of_python) return {*cpp};
  return {};
}

}  // namespace sheaf::inline v1::internal
