// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Workers of the other language within one job. A call names its worker's language by an entry of
// its runtime environment, since workers of two environments are never exchanged:
//   "@python=python3"      in a job of C++: the program's worker becomes this Python interpreter
//   "@cpp=/path/libapp.so" in a job of Python: its worker becomes this program, or hosts this
//                          library (python_bindings/sheaf/_worker/start.py)
#pragma once

#include <map>
#include <string>

namespace sheaf::inline v1::internal {

// Reads, in a worker, what its environment says of languages. One that shall be Python's becomes it
// (execvp), with the marks that make it a worker; where there is no such interpreter the process
// ends with status 1 and a line on stderr. Call it before TakeWorkerStart (base/config.h).
void TakeWorkerLanguage();

// `name`: of InitOptions::python.
void SetPythonInterpreter(std::string name);

// What the environment of a call says of its language, by the job and language of this process.
std::map<std::string, std::string> LanguageEnvironment(bool python);

}  // namespace sheaf::inline v1::internal
