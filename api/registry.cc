// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/registry.h"

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "sheaf/task.h"

namespace sheaf::inline v1::internal {
namespace {

struct Tables {
  Mutex mutex;  // Libraries opened at run time register too.
  absl::flat_hash_map<std::string, const FunctionRecord*> functions ABSL_GUARDED_BY(mutex);
  absl::flat_hash_map<std::string, const RetryRule*> retry_rules ABSL_GUARDED_BY(mutex);
  std::string errors ABSL_GUARDED_BY(mutex);
};

Tables& TheTables() {
  static Tables& tables = *new Tables;  // Registered to before main, looked at until the very end.
  return tables;
}

absl::string_view Abseil(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

void Register(const FunctionRecord* record) {
  Tables& tables = TheTables();
  const MutexLock lock(tables.mutex);
  const auto [at, is_new] = tables.functions.emplace(record->key, record);
  if (is_new || at->second == record) return;
  tables.errors += "two functions are registered as '" + record->name +
                   "': other processes cannot tell them apart; rename one, or put it into a "
                   "namespace of its own\n";
}

void RegisterRetryRule(const RetryRule* rule) {
  Tables& tables = TheTables();
  const MutexLock lock(tables.mutex);
  tables.retry_rules.emplace(rule->key, rule);  // Equal keys are equal lists of types.
}

const FunctionRecord* FindFunction(std::string_view key) {
  Tables& tables = TheTables();
  const MutexLock lock(tables.mutex);
  const auto found = tables.functions.find(Abseil(key));
  return found == tables.functions.end() ? nullptr : found->second;
}

const FunctionRecord& FindFunctionNamed(std::string_view name, FunctionRecord::Kind kind,
                                        size_t parameters) {
  std::vector<const FunctionRecord*> named;
  {
    Tables& tables = TheTables();
    const MutexLock lock(tables.mutex);
    for (const auto& [key, record] : tables.functions) {
      const std::string_view before_types = std::string_view(key).substr(0, key.find('#'));
      if (record->kind == kind && (record->name == name || before_types == name))
        named.push_back(record);
    }
  }
  if (named.empty()) {
    const char* const macro =
        kind == FunctionRecord::Kind::kFunction ? "SHEAF_REMOTE" : "SHEAF_ACTOR";
    throw NotFoundError(absl::StrCat("this program has no '", Abseil(name), "' in any ", macro,
                                     ": names are written with their namespaces, as app::Square"));
  }
  const FunctionRecord* found = nullptr;
  for (const FunctionRecord* record : named) {
    if (record->parameters != parameters) continue;
    if (found != nullptr) {
      throw InvalidArgumentError(absl::StrCat(
          "'", Abseil(name), "' with ", parameters,
          " parameters is registered more than once: other languages call by name, so register a "
          "function with a name of its own"));
    }
    found = record;
  }
  if (found != nullptr) return *found;
  throw InvalidArgumentError(absl::StrCat("'", Abseil(name), "' is called with ", parameters,
                                          " arguments, it has ", named.front()->parameters,
                                          " parameters"));
}

const RetryRule* FindRetryRule(std::string_view key) {
  Tables& tables = TheTables();
  const MutexLock lock(tables.mutex);
  const auto found = tables.retry_rules.find(Abseil(key));
  return found == tables.retry_rules.end() ? nullptr : found->second;
}

std::string RegistrationErrors() {
  Tables& tables = TheTables();
  const MutexLock lock(tables.mutex);
  return tables.errors;
}

void ThrowNotRegistered(const std::string& signature) {
  throw InvalidArgumentError(
      "a function of type " + signature +
      " is not known to Sheaf: name it in SHEAF_REMOTE(function) (a method: in SHEAF_ACTOR(Class, "
      "&Class::Method)) at namespace scope");
}

}  // namespace sheaf::inline v1::internal
