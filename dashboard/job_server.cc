// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/job_server.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/error_kind.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/text/json.h"
#include "base/unique_fd.h"
#include "dashboard/gcs_question.h"
#include "dashboard/job_request.h"

namespace sheaf::dashboard {
namespace {

constexpr Nanos kAnswerTime = 10 * kSecond;
constexpr uint32_t kPage = 10'000;
constexpr uint64_t kMostJobs = 20'000;  // Of one answer: all that a GCS keeps.

http::Response Json(std::string body) { return {.body = std::move(body)}; }

// What a client is told of an answer that did not come, or says no.
http::Response Failure(const absl::Status& status) {
  const bool is_wrong = absl::IsInvalidArgument(status);
  return http::PlainText(is_wrong ? 400 : 503, std::string(status.message()));
}
http::Response Refusal(const proto::GcsReply& reply) {
  switch (static_cast<ErrorKind>(reply.error())) {
    case ErrorKind::kNotFound:
      return http::PlainText(404, reply.message());
    case ErrorKind::kInvalidArgument:
      return http::PlainText(400, reply.message());
    case ErrorKind::kPendingCallsLimit:
      return http::PlainText(429, reply.message());
    default:
      return http::PlainText(500, reply.message());
  }
}

std::string RandomKey() {
  SeededRandom random(EntropySeed());
  return absl::StrCat(absl::Hex(random.Next(), absl::kZeroPad16),
                      absl::Hex(random.Next(), absl::kZeroPad16));
}

bool HasEnded(const proto::Submission& submission) {
  return submission.state() == proto::Submission::SUCCEEDED ||
         submission.state() == proto::Submission::FAILED ||
         submission.state() == proto::Submission::STOPPED;
}

uint64_t NumberOf(const http::Request& request, std::string_view name, uint64_t otherwise) {
  const std::optional<std::string_view> text = request.Query(name);
  uint64_t number = 0;
  return text && absl::SimpleAtoi(std::string(*text), &number) ? number : otherwise;
}

}  // namespace

JobServer::JobServer(Asker& asker, AskNode ask, std::string session)
    : asker_(asker), ask_(std::move(ask)), session_(std::move(session)), tails_(ask_) {}

void JobServer::AddRoutes(http::Router& router) {
  AddJobRoutes(router);
  AddPackageRoutes(router);
}

http::Handler JobServer::With(Plain handler) {
  return [this, handler](http::Request request, http::Reply reply) {
    asker_.Answer(
        reply, [this, handler, request = std::move(request)] { return (this->*handler)(request); });
  };
}

void JobServer::AddJobRoutes(http::Router& router) {
  using http::Reply;
  using http::Request;
  using http::Right;
  constexpr char kNoLogs[] = "Can only get logs of submission type jobs";
  router.Add({.method = "POST",
              .pattern = "/api/jobs",
              .right = Right::kChange,
              .handler = With(&JobServer::Submit),
              .body = http::Body::kMemory});
  router.Add({.method = "GET", .pattern = "/api/jobs", .handler = With(&JobServer::List)});
  router.Add({.method = "GET",
              .pattern = "/api/jobs/{id}",
              .handler = OfJob(nullptr, [](const Found& job, const Request& request, const Reply&) {
                return Json(job.is_submission
                                ? SubmissionJson(job.submission, job.Driver(), request.browser)
                                : DriverJson(*job.Driver()));
              })});
  router.Add({.method = "POST",
              .pattern = "/api/jobs/{id}/stop",
              .right = Right::kChange,
              .handler = OfJob("Can only stop submission type jobs",
                               [this](const Found& job, const Request&, const Reply&) {
                                 return Stop(job.submission);
                               })});
  router.Add({.method = "DELETE",
              .pattern = "/api/jobs/{id}",
              .right = Right::kChange,
              .handler = OfJob("Can only delete submission type jobs",
                               [this](const Found& job, const Request&, const Reply&) {
                                 return Delete(job.submission.entrypoint().submission_id());
                               })});
  router.Add({.method = "GET",
              .pattern = "/api/jobs/{id}/logs",
              .handler = OfJob(kNoLogs, [this](const Found& job, const Request& request,
                                               const Reply&) { return Logs(job, request); })});
  const WithJob follow = [this](const Found& job, const Request& request, const Reply& reply) {
    Follow(job, request, reply);
    return http::Response();  // Counts for nothing: the answer goes on.
  };
  router.Add({.method = "GET",
              .pattern = "/api/jobs/{id}/logs/tail",
              .handler = OfJob(kNoLogs, follow),
              .web_socket = true});
  router.Add(
      {.method = "GET", .pattern = "/api/sheaf/jobs/{id}/logs", .handler = OfJob(kNoLogs, follow)});
}

http::Handler JobServer::OfJob(const char* refusal, WithJob then) {
  return [this, refusal, then = std::move(then)](http::Request request, http::Reply reply) {
    asker_.Answer(reply, [this, refusal, then, request = std::move(request), reply] {
      const std::string id(request.Capture("id"));
      const absl::StatusOr<Found> job = Find(id);
      if (absl::IsNotFound(job.status()))
        return http::PlainText(404, absl::StrCat("Job ", id, " does not exist"));
      if (!job.ok()) return Failure(job.status());
      if (!job->is_submission && refusal != nullptr) return http::PlainText(400, refusal);
      return then(*job, request, reply);
    });
  };
}

absl::StatusOr<Drivers> JobServer::AskDrivers() const {
  proto::StateQuery jobs;
  jobs.set_what(proto::StateQuery::JOBS);
  const absl::StatusOr<proto::StateAnswer> answer = ask_(jobs, kAnswerTime);
  if (!answer.ok()) return absl::UnavailableError(answer.status().message());
  return SortDrivers(*answer);
}

const proto::JobRow* JobServer::Found::Driver() const {
  const auto& rows = is_submission ? drivers.of_submission : drivers.others;
  const auto row = rows.find(is_submission ? submission.entrypoint().submission_id() : job_id);
  return row == rows.end() ? nullptr : &row->second;
}

absl::StatusOr<JobServer::Found> JobServer::Find(const std::string& id) const {
  Found found;
  SHEAF_ASSIGN_OR_RETURN(found.drivers, AskDrivers());
  found.job_id = id;
  if (found.drivers.others.contains(id)) return found;
  const auto of_driver = found.drivers.submission_of.find(id);
  proto::GcsRequest request;
  request.mutable_get_submission()->set_submission_id(
      of_driver == found.drivers.submission_of.end() ? id : of_driver->second);
  SHEAF_ASSIGN_OR_RETURN(proto::GcsReply reply, AskGcs(ask_, request, kAnswerTime));
  if (reply.error() != 0) return absl::NotFoundError(reply.message());
  found.submission = std::move(*reply.mutable_submission());
  found.is_submission = true;
  return found;
}

http::Response JobServer::Submit(const http::Request& request) {
  std::string key(request.Header("idempotency-key"));
  if (key.empty()) key = RandomKey();  // The request is repeated here, too.
  absl::StatusOr<proto::SubmitEntrypoint> wanted = ParseJobRequest(request.body, key);
  if (!wanted.ok()) return Failure(wanted.status());
  proto::GcsRequest submit;
  *submit.mutable_submit_entrypoint() = *std::move(wanted);
  const absl::StatusOr<proto::GcsReply> done = AskGcs(ask_, submit, kAnswerTime);
  if (!done.ok()) return Failure(done.status());
  if (done->error() != 0) return Refusal(*done);
  const std::string id = JsonString(done->submission().entrypoint().submission_id());
  return Json(JsonObject().Add("job_id", id).Add("submission_id", id).Done());
}

// Submissions from the newest on, then drivers. ?limit and ?after (the id of the last one that was
// shown) give a page of submissions alone.
http::Response JobServer::List(const http::Request& request) {
  const bool is_page = request.Query("limit").has_value() || request.Query("after").has_value();
  const uint64_t limit = is_page ? NumberOf(request, "limit", 100) : kMostJobs;
  const absl::StatusOr<Drivers> drivers = AskDrivers();
  if (!drivers.ok()) return Failure(drivers.status());
  proto::GcsRequest list;
  if (const auto after = request.Query("after")) {
    proto::GcsRequest last;
    last.mutable_get_submission()->set_submission_id(std::string(*after));
    const absl::StatusOr<proto::GcsReply> known = AskGcs(ask_, last, kAnswerTime);
    if (!known.ok()) return Failure(known.status());
    if (known->error() != 0) return Refusal(*known);
    list.mutable_list_submissions()->set_before(known->submission().number());
  }
  JsonArray rows;
  uint64_t shown = 0;
  for (bool more = true; more && shown < limit;) {
    list.mutable_list_submissions()->set_limit(
        static_cast<uint32_t>(std::min<uint64_t>(limit - shown, kPage)));
    const absl::StatusOr<proto::GcsReply> page = AskGcs(ask_, list, kAnswerTime);
    if (!page.ok()) return Failure(page.status());
    for (const proto::Submission& submission : page->submissions().submissions()) {
      const auto driver = drivers->of_submission.find(submission.entrypoint().submission_id());
      rows.Add(SubmissionJson(submission,
                              driver == drivers->of_submission.end() ? nullptr : &driver->second,
                              request.browser));
      list.mutable_list_submissions()->set_before(submission.number());
      ++shown;
    }
    more = page->submissions().more() && page->submissions().submissions_size() > 0;
  }
  if (!is_page) {
    for (const auto& [id, row] : drivers->others) rows.Add(DriverJson(row));
  }
  return Json(rows.Done());
}

http::Response JobServer::Stop(const proto::Submission& submission) const {
  proto::GcsRequest stop;
  stop.mutable_stop_submission()->set_submission_id(submission.entrypoint().submission_id());
  const absl::StatusOr<proto::GcsReply> done = AskGcs(ask_, stop, kAnswerTime);
  if (!done.ok()) return Failure(done.status());
  if (done->error() != 0) return Refusal(*done);
  const bool stopped = !HasEnded(submission);
  return Json(JsonObject().Add("stopped", JsonBool(stopped)).Done());
}

http::Response JobServer::Delete(const std::string& id) const {
  proto::GcsRequest remove;
  remove.mutable_delete_submission()->set_submission_id(id);
  const absl::StatusOr<proto::GcsReply> done = AskGcs(ask_, remove, kAnswerTime);
  if (!done.ok()) return Failure(done.status());
  // Not there: it was a moment ago, and a request before this one has been heard.
  const auto error = static_cast<ErrorKind>(done->error());
  if (error == ErrorKind::kInvalidArgument) return http::PlainText(500, done->message());
  if (error != ErrorKind::kNone && error != ErrorKind::kNotFound) return Refusal(*done);
  return Json(JsonObject().Add("deleted", JsonBool(true)).Done());
}

std::string JobServer::LogPath(const proto::Submission& submission) const {
  return absl::StrCat(session_, "/logs/job-driver-", submission.entrypoint().submission_id(),
                      ".log");
}

http::Response JobServer::Logs(const Found& job, const http::Request& request) const {
  const UniqueFd file(open(LogPath(job.submission).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat about = {};
  if (!file.valid() || fstat(file.get(), &about) != 0)
    return Json(JsonObject().Add("logs", JsonString("")).Done());
  off_t begin = static_cast<off_t>(
      std::min<uint64_t>(NumberOf(request, "offset", 0), static_cast<uint64_t>(about.st_size)));
  const auto most = static_cast<off_t>(
      std::min<uint64_t>(NumberOf(request, "limit", kMaxShownLog), kMaxShownLog));
  std::string text;
  if (!request.Query("offset") && about.st_size > most) {
    begin = about.st_size - most;
    text = absl::StrCat("[sheaf: the first ", begin, " bytes are left out]\n");
  }
  std::string bytes(static_cast<size_t>(std::min(most, about.st_size - begin)), '\0');
  const ssize_t count = pread(file.get(), bytes.data(), bytes.size(), begin);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  return Json(JsonObject().Add("logs", JsonString(text + bytes)).Done());
}

void JobServer::Follow(const Found& job, const http::Request& request, const http::Reply& reply) {
  const std::string path = LogPath(job.submission);
  struct stat about = {};
  const off_t size = stat(path.c_str(), &about) == 0 ? about.st_size : 0;
  const auto wanted = static_cast<off_t>(
      std::min<uint64_t>(NumberOf(request, "offset", 0), static_cast<uint64_t>(INT64_MAX)));
  const off_t offset = std::max(wanted, size - kMaxShownLog);
  http::Response head;
  head.content_type = "text/plain; charset=utf-8";
  head.headers.emplace_back("X-Sheaf-Offset", absl::StrCat(offset));
  tails_.Add(job.submission.entrypoint().submission_id(), path, offset,
             reply.Open(std::move(head)));
}

}  // namespace sheaf::dashboard
