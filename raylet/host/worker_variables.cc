// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/worker_variables.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
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

struct ReferenceAt {
  std::string_view name;  // Empty: it is no reference.
  size_t length;          // Of all of it, with the sign.
};

// At the start of `text`, which is a '$'.
ReferenceAt ReferenceIn(std::string_view text) {
  const auto is_of_name = [](char c) { return absl::ascii_isalnum(c) || c == '_'; };
  if (text.starts_with("${")) {
    const size_t end = text.find('}');
    if (end == std::string_view::npos) return {{}, 2};
    return {text.substr(2, end - 2), end + 1};
  }
  size_t end = 1;
  while (end < text.size() && is_of_name(text[end])) ++end;
  return {text.substr(1, end - 1), end};
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

void Expand(std::vector<std::string> variables, std::vector<std::string>* over) {
  for (std::string& one : *over) {
    std::string expanded;
    std::string_view rest = one;
    for (size_t sign; (sign = rest.find('$')) != std::string_view::npos;) {
      expanded.append(rest.substr(0, sign));
      rest.remove_prefix(sign);
      const ReferenceAt reference = ReferenceIn(rest);
      const auto found =
          std::find_if(variables.begin(), variables.end(), [&](const std::string& variable) {
            return !reference.name.empty() && variable.starts_with(reference.name) &&
                   variable.substr(reference.name.size(), 1) == "=";
          });
      if (found != variables.end()) {
        expanded.append(found->substr(reference.name.size() + 1));
      } else if (reference.name.empty() || !rest.starts_with("${")) {
        expanded.append(rest.substr(0, reference.length));
      }
      rest.remove_prefix(reference.length);
    }
    one = expanded.append(rest);
    PutOver({one}, &variables);  // The next may name it.
  }
}

void PutOver(std::vector<std::string> over, std::vector<std::string>* variables) {
  // Later ones do not win over earlier ones in every program: the earlier go.
  absl::flat_hash_set<std::string_view> names;
  for (const std::string& one : over) names.insert(NameOf(one));
  std::erase_if(*variables, [&](const std::string& old) { return names.contains(NameOf(old)); });
  for (std::string& one : over) variables->push_back(std::move(one));
}

}  // namespace sheaf
