// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Packages on their way into the cluster: in the key-value store in parts, of which the index comes
// last, as the Python package has them (_internal/runtime_env_package.py).
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/error_kind.h"
#include "base/text/json.h"
#include "base/unique_fd.h"
#include "dashboard/gcs_question.h"
#include "dashboard/job_server.h"

namespace sheaf::dashboard {
namespace {

constexpr char kNameSpace[] = "sheaf-packages";
constexpr uint32_t kNoJobYet = UINT32_MAX;        // See KvPut.
constexpr size_t kPartBytes = 192 << 10;          // Of what a tool may ask in one question.
constexpr uint64_t kMaxPackageBytes = 256 << 20;  // That workers unpack.
constexpr size_t kMaxNameBytes = 255;
constexpr Nanos kAnswerTime = 30 * kSecond;

// What is wrong with it; empty: nothing.
std::string WhatIsWrong(std::string_view protocol, const std::string& name) {
  if (protocol != "gcs") return "packages are uploaded as gcs://NAME";
  if (absl::EndsWith(name, ".jar")) return "there is no Java here: want a .zip or .whl file";
  if (!absl::EndsWith(name, ".zip") && !absl::EndsWith(name, ".whl"))
    return "a package is a .zip or .whl file";
  const bool has_odd = std::any_of(name.begin(), name.end(), [](unsigned char c) {
    return c <= ' ' || c == '/' || c == '\\' || c >= 127;
  });
  if (name.size() > kMaxNameBytes || has_odd || name.front() == '.') return "no name of a package";
  return "";
}

absl::Status Put(const AskNode& ask, const std::string& key, std::string value) {
  proto::GcsRequest request;
  request.mutable_kv_put()->set_name_space(kNameSpace);
  request.mutable_kv_put()->set_key(key);
  request.mutable_kv_put()->set_value(std::move(value));
  request.mutable_kv_put()->set_overwrite(true);
  request.mutable_kv_put()->set_owner(kNoJobYet);
  const absl::StatusOr<proto::GcsReply> reply = AskGcs(ask, request, kAnswerTime);
  if (!reply.ok()) return reply.status();
  return reply->error() == 0 ? absl::OkStatus() : absl::InternalError(reply->message());
}

}  // namespace

void JobServer::AddPackageRoutes(http::Router& router) {
  const char* const pattern = "/api/packages/{protocol}/{name}";
  router.Add({.method = "GET", .pattern = pattern, .handler = With(&JobServer::HasPackage)});
  router.Add({.method = "PUT",
              .pattern = pattern,
              .right = http::Right::kChange,
              .handler = With(&JobServer::PutPackage),
              .body = http::Body::kFile,
              .most_body_bytes = kMaxPackageBytes});
}

http::Response JobServer::HasPackage(const http::Request& request) {
  proto::GcsRequest question;
  question.mutable_kv_exists()->set_name_space(kNameSpace);
  question.mutable_kv_exists()->add_keys(std::string(request.Capture("name")));
  const absl::StatusOr<proto::GcsReply> answer = AskGcs(ask_, question, kAnswerTime);
  if (!answer.ok()) return http::PlainText(503, std::string(answer.status().message()));
  if (answer->kv_count().count() == 1) return {.content_type = "text/plain"};
  return http::PlainText(404,
                         absl::StrCat("Package ", std::string(request.Capture("protocol")), "://",
                                      std::string(request.Capture("name")), " does not exist"));
}

http::Response JobServer::PutPackage(const http::Request& request) {
  const std::string name(request.Capture("name"));
  if (const std::string wrong = WhatIsWrong(request.Capture("protocol"), name); !wrong.empty())
    return http::PlainText(400, wrong);
  const UniqueFd file(request.body_file == nullptr
                          ? -1
                          : open(request.body_file->path().c_str(), O_RDONLY | O_CLOEXEC));
  uint64_t offset = 0;
  uint64_t parts = 0;
  while (file.valid()) {
    std::string part(kPartBytes, '\0');
    const ssize_t count = pread(file.get(), part.data(), part.size(), static_cast<off_t>(offset));
    if (count <= 0) break;
    part.resize(static_cast<size_t>(count));
    offset += part.size();
    const absl::Status done = Put(ask_, absl::StrCat(name, "/", parts++), std::move(part));
    if (!done.ok()) return http::PlainText(500, std::string(done.message()));
  }
  if (offset != request.body_bytes)
    return http::PlainText(500, "the package could not be read back from its file");
  const absl::Status done =
      Put(ask_, name,
          JsonObject().Add("parts", JsonNumber(parts)).Add("bytes", JsonNumber(offset)).Done());
  if (!done.ok()) return http::PlainText(500, std::string(done.message()));
  return {.content_type = "text/plain"};
}

}  // namespace sheaf::dashboard
