// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// From options to what is the same for all calls of a function with them: made once, used by many
// calls.
#pragma once

#include <string>

#include "api/core.h"
#include "sheaf/internal/registry.h"
#include "sheaf/options.h"

namespace sheaf::inline v1::internal {

// proto::TaskTemplate::extra.
struct TemplateExtra {
  std::string retry_rule;  // Of RegisterRetryRule.
  std::string class_key;   // Of actors.
};

// Throws InvalidArgumentError: amounts, labels or variables that are none. `results`: how many
// returns; ignored for generators.
proto::TaskTemplate BuildTemplate(const FunctionRecord& function, const Options& options,
                                  uint32_t results);

// The template of `function` with `options`, from the cache that the record or the holder is.
// Thread-safe for different holders.
const TemplateHandle& TemplateOf(const FunctionRecord& function, OptionHolder& options,
                                 uint32_t results);

// The strategy of the task, or of the actor, that this process runs: where it says that children go
// to its placement group, what is submitted from now on without a strategy goes there. Any thread.
void SetRunningStrategy(const proto::Strategy& strategy);
// The placement group of that task or actor; nil: none. Any thread.
PlacementGroupId RunningGroup();

// Variables as the runtime's environment; throws InvalidArgumentError.
std::string EnvironmentBytes(const std::map<std::string, std::string>& variables);
// Amounts as the protocol has them; throws InvalidArgumentError.
void FillResources(const std::map<std::string, double>& amounts, proto::Resources* out);
void FillSelectors(const std::vector<LabelSelector>& selectors,
                   google::protobuf::RepeatedPtrField<proto::LabelSelector>* out);
void FillSelector(const LabelSelector& selector, proto::LabelSelector* out);

}  // namespace sheaf::inline v1::internal
