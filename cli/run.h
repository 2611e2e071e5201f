// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf run: becomes Python with a program, so that the program finds the package sheaf.
#pragma once

#include <string>
#include <vector>

#include "raylet/entrypoints/entrypoint_processes.h"

namespace sheaf::cli {

struct RunOptions {
  bool as_ray = false;  // `import ray` means sheaf, in the program's children too.
  int processes = 0;    // 0: this process; else so many, as ranks of one group (sheaf.launch).
  std::string python;   // Empty: SHEAF_PYTHON, else python3 of PATH.
  // What Python gets: a script (or -m MODULE, -c CODE), its own.
  std::vector<std::string> arguments;
};

// Does not return if all goes well: the process is Python then, and its exit status the program's.
// kUsage: there is no program. kFailed: Python cannot be run, or the package is not beside this
// command.
int RunProgram(const RunOptions& options);

// The words of this process's command line, with "ray" behind the first where that is a link of this
// name: `ray status` is `sheaf ray status`.
std::vector<char*> CalledAsRay(int argc, char** argv);

// Where the Python package is, seen from this program.
struct Package {
  std::string folder;     // Holds __init__.py. Empty: there is none beside this program.
  bool installed = true;  // Python finds it by itself.

  std::string Parent() const;
  // Holds a module `ray`, which Python finds before a real one.
  std::string Alias() const;
};

Package FindPackage();

// For the commands of jobs that a node of that session runs: they find the package.
EntrypointOptions OptionsOfEntrypoints(const std::string& session);

}  // namespace sheaf::cli
