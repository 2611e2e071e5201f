// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Python's functions as records, and its actors by name.
#include "api/core.h"

#include "base/mutex.h"
#include "sheaf/python.h"

#include <map>
#include <tuple>

#include "api/failures.h"
#include "api/process.h"

namespace sheaf::inline v1::internal {

const FunctionRecord& PythonFunction(FunctionRecord::Kind kind, std::string_view path,
                                     bool streaming) {
  using Key = std::tuple<FunctionRecord::Kind, std::string, bool>;
  static Mutex mutex;
  static auto& records ABSL_GUARDED_BY(mutex) = *new std::map<Key, FunctionRecord>;
  const MutexLock lock(mutex);
  const auto [at, is_new] = records.try_emplace(Key(kind, path, streaming));
  FunctionRecord& record = at->second;
  if (is_new) {
    record.kind = kind;
    record.key = std::string(kNamedPrefix) + std::string(path);
    record.name = path.substr(path.find(':') + 1);
    record.python = true;
    record.streaming = streaming;
  }
  return record;
}

Handle FindPythonActor(std::string_view name, std::string_view name_space) {
  proto::TaskTemplate creation;
  Handle actor = PublicHandle(ValueOrThrow(TheRuntime().GetActor(name, name_space, &creation)));
  if (creation.language() != proto::JobStart::PYTHON) {
    throw InvalidArgumentError("actor '" + std::string(name) +
                               "' is one of C++: its handle comes from GetActor");
  }
  return actor;
}

}  // namespace sheaf::inline v1::internal
