// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/options.h"

#include "base/environment.h"
#include "base/ids.h"
#include "base/resources.h"

namespace sheaf::python {
namespace {

namespace nb = nanobind;

std::string TextOf(absl::string_view text) { return {text.data(), text.size()}; }

template <class T>
T Field(const nb::dict& dict, const char* name, T otherwise) {
  return dict.contains(name) ? nb::cast<T>(dict[name]) : otherwise;
}

}  // namespace

void FillAmounts(const Amounts& amounts, proto::Resources* out) {
  for (const auto& [name, amount] : amounts) {
    if (amount == 0) continue;
    const absl::StatusOr<Amount> fixed = AmountFromDouble(name, amount);
    if (!fixed.ok()) throw nb::value_error(TextOf(fixed.status().message()).c_str());
    (*out->mutable_amounts())[name] = *fixed;
  }
}

Amounts AmountsOf(const proto::Resources& resources) {
  Amounts out;
  for (const auto& [name, amount] : resources.amounts())
    out[name] = static_cast<double>(amount) / kUnit;
  return out;
}

void FillSelector(nb::handle terms, proto::LabelSelector* out) {
  for (nb::handle term : terms) {
    proto::LabelTerm* const to = out->add_terms();
    to->set_key(nb::cast<std::string>(term[0]));
    for (nb::handle value : term[1]) to->add_values(nb::cast<std::string>(value));
    to->set_negated(nb::cast<bool>(term[2]));
  }
}

void FillStrategy(const nb::dict& strategy, proto::Strategy* out) {
  const std::string kind = Field<std::string>(strategy, "kind", "hybrid");
  if (kind == "spread") {
    out->set_kind(proto::Strategy::SPREAD);
  } else if (kind == "node") {
    out->set_kind(proto::Strategy::NODE_AFFINITY);
    out->set_node(Field<uint32_t>(strategy, "node", 0));
    out->set_soft(Field<bool>(strategy, "soft", false));
  } else if (kind == "group") {
    out->set_kind(proto::Strategy::PLACEMENT_GROUP);
    const absl::StatusOr<PlacementGroupId> id =
        PlacementGroupId::FromHex(Field<std::string>(strategy, "group", ""));
    if (!id.ok()) throw nb::value_error("a placement group is named by 32 hexadecimal digits");
    out->set_group_id(id->Binary());
    out->set_bundle(Field<int>(strategy, "bundle", -1));
    out->set_capture_children(Field<bool>(strategy, "capture", false));
  }
  if (strategy.contains("selectors")) {
    for (nb::handle selector : strategy["selectors"]) FillSelector(selector, out->add_selectors());
  }
}

std::string EnvironmentBytes(const std::map<std::string, std::string>& variables) {
  RuntimeEnvironment environment;
  for (const auto& [name, value] : variables) {
    (name.starts_with('@') ? environment.others : environment.variables)[name] = value;
  }
  absl::StatusOr<std::string> bytes = EncodeEnvironment(environment);
  if (!bytes.ok()) throw nb::value_error(TextOf(bytes.status().message()).c_str());
  return *std::move(bytes);
}

}  // namespace sheaf::python
