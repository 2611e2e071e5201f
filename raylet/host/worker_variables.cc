// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/worker_variables.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/config.h"

namespace sheaf {
namespace {

constexpr std::string_view kNotForWorkers[] = {kWorkerVariable,
                                               kSocketVariable,
                                               kTemplateVariable,
                                               kJobVariable,
                                               kRuntimeEnvironmentVariable,
                                               kEnvironmentBytesVariable,
                                               "SHEAF_ADDRESS",
                                               "SHEAF_TOKEN"};
constexpr std::string_view kTravelling[] = {"PYTHONPATH",      "LD_LIBRARY_PATH", "SHEAF_LOG_LEVEL",
                                            "SHEAF_FAILPOINT", "SHEAF_NCCL_LIB",  "SHEAF_CUDA_LIB"};

template <size_t n>
bool IsOneOf(const std::string_view (&names)[n], std::string_view variable) {
  const std::string_view name = variable.substr(0, variable.find('='));
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

std::string_view NameOf(std::string_view variable) {
  const size_t sign = variable.find('=');
  return sign == std::string_view::npos ? variable : variable.substr(0, sign + 1);
}

std::vector<std::string> ForWorkers(std::vector<std::string> variables) {
  std::erase_if(variables, [](const std::string& one) { return IsOneOf(kNotForWorkers, one); });
  return variables;
}

std::vector<std::string> OfNode(std::vector<std::string> variables) {
  // Faults that were planted in the node are none of its workers'.
  std::erase_if(variables,
                [](const std::string& one) { return NameOf(one) == "SHEAF_FAILPOINT="; });
  return ForWorkers(std::move(variables));
}

void KeepWhatTravels(proto::JobStart* start) {
  auto* variables = start->mutable_environ();
  variables->erase(std::remove_if(variables->begin(), variables->end(),
                                  [](const auto& one) { return !IsOneOf(kTravelling, one); }),
                   variables->end());
}

void PutOver(std::vector<std::string> over, std::vector<std::string>* variables) {
  // Later ones do not win over earlier ones in every program: the earlier go.
  absl::flat_hash_set<std::string_view> names;
  for (const std::string& one : over) names.insert(NameOf(one));
  std::erase_if(*variables, [&](const std::string& old) { return names.contains(NameOf(old)); });
  for (std::string& one : over) variables->push_back(std::move(one));
}

}  // namespace sheaf
