// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/job_request.h"

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "http/json.h"

namespace sheaf::dashboard {
namespace {

namespace json = boost::json;

constexpr double kUnits = 10'000;  // In proto::Resources.
constexpr double kMostOfOne = 9e14;
constexpr char kIdCharacters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

std::string Text(const json::string& text) { return std::string(text.data(), text.size()); }
std::string Text(json::string_view text) { return std::string(text.data(), text.size()); }

// As Python names it, which is who reads these texts.
const char* KindOf(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "<class 'NoneType'>";
    case json::kind::bool_:
      return "<class 'bool'>";
    case json::kind::int64:
    case json::kind::uint64:
      return "<class 'int'>";
    case json::kind::double_:
      return "<class 'float'>";
    case json::kind::string:
      return "<class 'str'>";
    case json::kind::array:
      return "<class 'list'>";
    case json::kind::object:
      return "<class 'dict'>";
  }
  return "?";
}

absl::Status Wrong(const std::string& field, const char* wanted, const json::value& value) {
  return absl::InvalidArgumentError(
      absl::StrCat("TypeError: ", field, " must be ", wanted, ", got ", KindOf(value)));
}

absl::Status AddAmount(const std::string& field, const std::string& name, const json::value& value,
                       proto::Entrypoint* wanted) {
  if (!value.is_number()) return Wrong(field, "a number", value);
  const double amount = value.to_number<double>();
  if (!(amount >= 0) || amount > kMostOfOne)
    return absl::InvalidArgumentError(absl::StrCat("ValueError: ", field, " is ", amount));
  if (!IsUtf8(name))
    return absl::InvalidArgumentError(
        absl::StrCat("ValueError: ", field, " has a name that is not UTF-8"));
  if (amount > 0) {
    (*wanted->mutable_resources()->mutable_amounts())[name] =
        static_cast<int64_t>(std::llround(amount * kUnits));
  }
  return absl::OkStatus();
}

// "a", "!a", "in(a,b)", "!in(a,b)".
void AddLabel(const std::string& key, std::string_view selector, proto::Entrypoint* wanted) {
  proto::LabelTerm* term = wanted->mutable_labels()->add_terms();
  term->set_key(key);
  std::string text(absl::StripAsciiWhitespace({selector.data(), selector.size()}));
  if (absl::StartsWith(text, "!")) {
    term->set_negated(true);
    text.erase(0, 1);
  }
  if (absl::StartsWith(text, "in(") && absl::EndsWith(text, ")")) {
    for (const absl::string_view value : absl::StrSplit(text.substr(3, text.size() - 4), ','))
      term->add_values(std::string(absl::StripAsciiWhitespace(value)));
  } else {
    term->add_values(text);
  }
}

absl::Status AddRuntimeEnv(const json::value& value, proto::SubmitEntrypoint* request) {
  if (!value.is_object()) return Wrong("runtime_env", "a dict", value);
  proto::Entrypoint* wanted = request->mutable_entrypoint();
  for (const auto& [key, content] : value.get_object()) {
    const std::string name = Text(key);
    if (content.is_null() || absl::StartsWith(name, "_")) continue;
    if (name == "env_vars") {
      if (!content.is_object())
        return Wrong("runtime_env['env_vars']", "of type Dict[str, str]", content);
      for (const auto& [variable, text] : content.get_object()) {
        if (!text.is_string())
          return Wrong("runtime_env['env_vars']", "of type Dict[str, str]", text);
        wanted->add_environ(absl::StrCat(Text(variable), "=", Text(text.get_string())));
        double seconds = 0;
        if (variable == "RAY_JOB_START_TIMEOUT_SECONDS" &&
            absl::SimpleAtod(Text(text.get_string()), &seconds) && seconds > 0 && seconds < 1e9) {
          request->set_start_timeout_ns(
              static_cast<int64_t>(seconds * static_cast<double>(kSecond)));
        }
      }
      continue;
    }
    if (name == "java_jars")
      return absl::InvalidArgumentError(
          "ValueError: runtime_env['java_jars']: there is no Java here");
    // Settings of the others, which make nothing by themselves.
    if (name != "config" && name != "excludes" && name != "worker_process_setup_hook")
      wanted->set_prepares(true);
  }
  wanted->set_runtime_env(json::serialize(value));
  return absl::OkStatus();
}

absl::Status AddMetadata(const json::value& value, proto::Entrypoint* wanted) {
  if (!value.is_object()) return Wrong("metadata", "a dict", value);
  for (const auto& [key, text] : value.get_object()) {
    if (!text.is_string()) return Wrong("metadata values", "strings", text);
  }
  wanted->set_metadata(json::serialize(value));
  return absl::OkStatus();
}

absl::Status AddField(const std::string& field, const json::value& value,
                      proto::SubmitEntrypoint* request) {
  proto::Entrypoint* wanted = request->mutable_entrypoint();
  if (field == "entrypoint" || field == "submission_id" || field == "job_id") {
    const bool is_id = field != "entrypoint";
    if (!value.is_string()) return Wrong(field, is_id ? "a string if provided" : "a string", value);
    if (!is_id) {
      wanted->set_command(Text(value.get_string()));
    } else if (wanted->submission_id().empty() || field == "submission_id") {
      wanted->set_submission_id(Text(value.get_string()));
    }
    return absl::OkStatus();
  }
  if (field == "runtime_env") return AddRuntimeEnv(value, request);
  if (field == "metadata") return AddMetadata(value, wanted);
  if (field == "entrypoint_num_cpus") return AddAmount(field, "CPU", value, wanted);
  if (field == "entrypoint_num_gpus") return AddAmount(field, "GPU", value, wanted);
  if (field == "entrypoint_memory") {
    if (!value.is_int64() && !value.is_uint64()) return Wrong(field, "an integer", value);
    return AddAmount(field, "memory", value, wanted);
  }
  if (field == "entrypoint_resources") {
    if (!value.is_object()) return Wrong(field, "a dict", value);
    for (const auto& [name, amount] : value.get_object())
      SHEAF_RETURN_IF_ERROR(AddAmount("entrypoint_resources values", Text(name), amount, wanted));
    return absl::OkStatus();
  }
  if (field == "entrypoint_label_selector") {
    if (!value.is_object()) return Wrong(field, "a dict", value);
    for (const auto& [key, selector] : value.get_object()) {
      if (!selector.is_string()) return Wrong(field + " values", "strings", selector);
      AddLabel(Text(key), Text(selector.get_string()), wanted);
    }
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("TypeError: JobSubmitRequest got an unexpected keyword argument '", field, "'"));
}

}  // namespace

absl::StatusOr<proto::SubmitEntrypoint> ParseJobRequest(std::string_view body,
                                                        const std::string& idempotency_key) {
  SHEAF_ASSIGN_OR_RETURN(const json::value parsed, http::ParseJson(body));
  if (!parsed.is_object()) return Wrong("the request", "a JSON object", parsed);
  proto::SubmitEntrypoint request;
  for (const auto& [key, value] : parsed.get_object()) {
    if (value.is_null()) continue;  // Newer clients have fields that older ones do not know.
    SHEAF_RETURN_IF_ERROR(AddField(Text(key), value, &request));
  }
  if (!parsed.get_object().contains("entrypoint"))
    return absl::InvalidArgumentError("TypeError: missing 1 required argument: 'entrypoint'");
  request.set_idempotency_key(idempotency_key);
  if (request.entrypoint().submission_id().empty()) {
    std::string id = "raysubmit_";
    uint64_t state = 1469598103934665603u;
    for (int i = 0; i < 16; ++i) {
      for (const char c : idempotency_key)
        state = (state ^ static_cast<unsigned char>(c)) * 1099511628211u;
      id.push_back(kIdCharacters[(state >> 32) % (sizeof(kIdCharacters) - 1)]);
    }
    request.mutable_entrypoint()->set_submission_id(id);
  }
  return request;
}

}  // namespace sheaf::dashboard
