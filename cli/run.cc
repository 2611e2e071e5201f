// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/run.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "base/config.h"
#include "cli/query.h"

namespace sheaf::cli {
namespace {

std::string VariableOr(const char* name, const std::string& otherwise) {
  const char* const value = getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

}  // namespace

namespace fs = std::filesystem;

std::string Package::Parent() const { return fs::path(folder).parent_path(); }

std::string Package::Alias() const { return fs::path(folder) / "_ray" / "_alias"; }

// Around this program in a wheel (sheaf/bin/sheaf), beside it in a build folder (cli/sheaf and
// python/sheaf).
Package FindPackage() {
  std::error_code error;
  const fs::path own = fs::canonical("/proc/self/exe", error).parent_path();
  if (fs::exists(own.parent_path() / "__init__.py", error)) return {own.parent_path(), true};
  const fs::path built = own.parent_path() / "python" / "sheaf";
  if (fs::exists(built / "__init__.py", error)) return {built, false};
  return {};
}

EntrypointOptions OptionsOfEntrypoints(const std::string& session) {
  EntrypointOptions options;
  const Package package = FindPackage();
  if (!package.folder.empty()) {
    if (!package.installed) options.package_parent = package.Parent();
    options.alias_directory = package.Alias();
  }
  options.scratch_directory = session + "/entrypoints";
  return options;
}

std::vector<char*> CalledAsRay(int argc, char** argv) {
  static char ray[] = "ray";
  std::vector<char*> words(argv, argv + argc);
  if (argc > 0 && fs::path(argv[0]).filename() == ray) words.insert(words.begin() + 1, ray);
  return words;
}

int RunProgram(const RunOptions& options) {
  if (options.arguments.empty()) {
    std::fputs("sheaf run: which program? As: sheaf run script.py ARGS\n", stderr);
    return kUsage;
  }
  const Package package = FindPackage();
  if (options.as_ray && package.folder.empty()) {
    std::fputs(
        "sheaf run --as-ray: the Python package is not beside this program: run the `sheaf` that "
        "pip installed\n",
        stderr);
    return kFailed;
  }
  std::string path = VariableOr("PYTHONPATH", "");
  const auto put_in_front = [&path](const std::string& folder) {
    path = path.empty() ? folder : folder + ":" + path;
  };
  if (!package.installed) put_in_front(package.Parent());
  if (options.as_ray) put_in_front(package.Alias());
  if (!path.empty()) SetVariable("PYTHONPATH", path);

  std::string python =
      options.python.empty() ? VariableOr("SHEAF_PYTHON", "python3") : options.python;
  std::vector<std::string> arguments = options.arguments;
  if (options.processes > 0) {
    const std::string count = std::to_string(options.processes);
    arguments.insert(arguments.begin(), {"-m", "sheaf.launch", "--nproc", count});
  }
  std::vector<char*> argv{python.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execvp(python.c_str(), argv.data());
  std::fprintf(stderr, "sheaf run: %s: %s. Name a Python with --python or SHEAF_PYTHON.\n",
               python.c_str(), std::strerror(errno));
  return kFailed;
}

}  // namespace sheaf::cli
