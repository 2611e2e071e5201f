// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/template.h"

#include <string>
#include <utility>

#include "python_bindings/core/options.h"
#include "python_bindings/core/process.h"

namespace sheaf::python {
namespace {

namespace nb = nanobind;

struct Template {
  TemplateHandle handle;
};

template <class T>
T Field(const nb::dict& options, const char* name, T otherwise) {
  if (!options.contains(name)) return otherwise;
  nb::handle value = options[name];
  return value.is_none() ? otherwise : nb::cast<T>(value);
}

std::string BytesField(const nb::dict& options, const char* name) {
  if (!options.contains(name)) return {};
  const nb::bytes bytes = nb::cast<nb::bytes>(options[name]);
  return {bytes.c_str(), bytes.size()};
}

void FillLease(const nb::dict& options, bool actor, proto::LeaseSpec* lease) {
  FillAmounts(Field<Amounts>(options, "resources", {}), lease->mutable_resources());
  if (options.contains("running"))
    FillAmounts(Field<Amounts>(options, "running", {}), lease->mutable_running());
  if (options.contains("strategy"))
    FillStrategy(nb::cast<nb::dict>(options["strategy"]), lease->mutable_strategy());
  lease->set_environment(
      EnvironmentBytes(Field<std::map<std::string, std::string>>(options, "environment", {})));
  lease->set_actor(actor);
}

void FillActor(const nb::dict& options, proto::ActorOptions* actor) {
  actor->set_max_restarts(Field(options, "max_restarts", 0));
  actor->set_max_task_retries(Field(options, "max_task_retries", 0));
  actor->set_max_concurrency(Field<uint32_t>(options, "max_concurrency", 0));
  actor->set_is_async(Field(options, "is_async", false));
  for (const auto& [name, limit] :
       Field<std::map<std::string, uint32_t>>(options, "concurrency_groups", {})) {
    proto::ConcurrencyGroup* const group = actor->add_groups();
    group->set_name(name);
    group->set_max_concurrency(limit);
  }
  actor->set_out_of_order(Field(options, "out_of_order", false));
  actor->set_max_pending_calls(Field<int64_t>(options, "max_pending_calls", -1));
  actor->set_name(Field<std::string>(options, "actor_name", ""));
  actor->set_name_space(Field<std::string>(options, "namespace", ""));
  actor->set_detached(Field(options, "detached", false));
  actor->set_get_if_exists(Field(options, "get_if_exists", false));
}

// The options that sheaf.options made; what is not there is the protocol's default.
Template MakeTemplate(const nb::dict& options) {
  Runtime* const runtime = RequireRuntime();
  if (runtime == nullptr) throw nb::python_error();
  proto::TaskTemplate spec;
  const std::string kind = Field<std::string>(options, "kind", "task");
  spec.set_language(Field(options, "cpp", false) ? proto::JobStart::CPP : proto::JobStart::PYTHON);
  spec.set_function(Field<std::string>(options, "function", ""));
  spec.set_name(Field<std::string>(options, "name", ""));
  spec.set_call_name(Field<std::string>(options, "call_name", ""));
  spec.set_extra(BytesField(options, "extra"));
  spec.set_num_returns(Field<uint32_t>(options, "num_returns", 1));
  spec.set_streaming(Field(options, "streaming", false));
  spec.set_max_unconsumed(Field<int64_t>(options, "max_unconsumed", 0));
  spec.set_max_unconsumed_bytes(Field<int64_t>(options, "max_unconsumed_bytes", 0));
  spec.set_retry_exceptions(Field(options, "retry_exceptions", false));
  if (kind == "task") {
    spec.set_kind(proto::TaskTemplate::TASK);
    spec.set_max_retries(Field(options, "max_retries", 3));
    spec.set_max_calls(Field<uint32_t>(options, "max_calls", 0));
    FillLease(options, false, spec.mutable_lease());
  } else if (kind == "actor") {
    spec.set_kind(proto::TaskTemplate::ACTOR_CREATION);
    FillLease(options, true, spec.mutable_lease());
    FillActor(options, spec.mutable_actor());
  } else {
    spec.set_kind(proto::TaskTemplate::ACTOR_METHOD);
    spec.set_max_retries(Field(options, "max_retries", kRetriesOfActor));
    spec.set_concurrency_group(Field<std::string>(options, "concurrency_group", ""));
  }
  absl::StatusOr<TemplateHandle> made = runtime->MakeTemplate(std::move(spec));
  if (!made.ok()) {
    RaiseStatus(made.status(), ErrorKind::kInvalidArgument);
    throw nb::python_error();
  }
  return {*std::move(made)};
}

}  // namespace

bool TemplateFrom(PyObject* object, TemplateHandle* out) {
  Template* made = nullptr;
  if (!nb::try_cast<Template*>(nb::handle(object), made) || made == nullptr) {
    PyErr_SetString(PyExc_TypeError, "want a template of make_template");
    return false;
  }
  *out = made->handle;
  return true;
}

void BindTemplates(nb::module_& module) {
  nb::class_<Template>(module, "Template",
                       "What is the same for all calls of a function with its options.");
  module.def("make_template", &MakeTemplate, nb::arg("options"),
             "The template for options as sheaf.options makes them; the same options give the same "
             "template.");
}

}  // namespace sheaf::python
