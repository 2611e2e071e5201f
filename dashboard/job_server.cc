// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/job_server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/error_kind.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/text/json.h"
#include "dashboard/gcs_question.h"
#include "dashboard/job_request.h"
#include "dashboard/logs/log_finder.h"
#include "dashboard/state_rows.h"

namespace sheaf::dashboard {
namespace {

constexpr Nanos kAnswerTime = 10 * kSecond;
constexpr uint32_t kPage = 10'000;
constexpr uint64_t kMostJobs = 20'000;  // Of one answer: all that a GCS keeps.
constexpr char kNoLogs[] = "Can only get logs of submission type jobs";
constexpr uint64_t kMaxShownLog = 64 << 20;

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
  router.Add({.method = "POST",
              .pattern = "/api/jobs",
              .right = Right::kChange,
              .handler = With(&JobServer::Submit),
              .body = http::Body::kMemory});
  router.Add({.method = "GET", .pattern = "/api/jobs", .handler = With(&JobServer::List)});
  router.Add({.method = "GET",
              .pattern = "/api/jobs/{id}",
              .handler = OfJob(nullptr, [](const Found& job, const Request& request, const Reply&) {
                return Json(job.is_submission ? SubmissionJson(job.submission, job.Driver(),
                                                               job.nodes, request.browser)
                                              : DriverJson(*job.Driver(), job.nodes));
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
              .handler = OfJob(
                  kNoLogs, [this](const Found& job, const Request& request, const Reply& reply) {
                    return Logs(job, request, reply);
                  })});
  router.Add({.method = "GET",
              .pattern = "/api/jobs/{id}/logs/tail",
              .handler = Follow(/*is_counted=*/false),
              .web_socket = true});
  router.Add({.method = "GET",
              .pattern = "/api/sheaf/jobs/{id}/logs",
              .handler = Follow(/*is_counted=*/true)});
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

absl::StatusOr<NodePlaces> JobServer::AskNodes() const {
  proto::StateQuery nodes;
  nodes.set_what(proto::StateQuery::NODES);
  const absl::StatusOr<proto::StateAnswer> answer = ask_(nodes, kAnswerTime);
  if (!answer.ok()) return absl::UnavailableError(answer.status().message());
  return PlacesOf(*answer);
}

const proto::JobRow* JobServer::Found::Driver() const {
  const auto& rows = is_submission ? drivers.of_submission : drivers.others;
  const auto row = rows.find(is_submission ? submission.entrypoint().submission_id() : job_id);
  return row == rows.end() ? nullptr : &row->second;
}

absl::StatusOr<JobServer::Found> JobServer::Find(const std::string& id) const {
  Found found;
  SHEAF_ASSIGN_OR_RETURN(found.drivers, AskDrivers());
  SHEAF_ASSIGN_OR_RETURN(found.nodes, AskNodes());
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
  const absl::StatusOr<NodePlaces> nodes = AskNodes();
  if (!nodes.ok()) return Failure(nodes.status());
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
                              *nodes, request.browser));
      list.mutable_list_submissions()->set_before(submission.number());
      ++shown;
    }
    more = page->submissions().more() && page->submissions().submissions_size() > 0;
  }
  if (!is_page) {
    for (const auto& [id, row] : drivers->others) rows.Add(DriverJson(row, *nodes));
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

NodeLog JobServer::LogOf(const proto::Submission& submission) const {
  return NodeLog(ask_, {submission.node(), JobLogOf(submission.entrypoint().submission_id())});
}

// The last 64 MiB of what there is, or ?limit bytes of it from ?offset on.
http::Response JobServer::Logs(const Found& job, const http::Request& request,
                               const http::Reply& reply) {
  constexpr char kHead[] = "{\"logs\":\"";
  constexpr char kTail[] = "\"}";
  NodeLog log = LogOf(job.submission);
  absl::StatusOr<proto::LogPiece> end = absl::NotFoundError("");
  if (job.submission.node() != 0) end = log.Last(0, 1);
  // Nothing is printed yet, or the log has gone with its node.
  if (absl::IsNotFound(end.status())) return Json(absl::StrCat(kHead, kTail));
  if (absl::IsAborted(end.status()))
    return http::PlainText(404, std::string(end.status().message()));
  if (!end.ok()) return Failure(end.status());
  const uint64_t most = std::min(NumberOf(request, "limit", kMaxShownLog), kMaxShownLog);
  const bool is_part = request.Query("offset").has_value();
  uint64_t begin = end->next() - std::min(end->next(), most);
  if (is_part) begin = std::min(NumberOf(request, "offset", 0), end->next());
  const uint64_t until = std::min(end->next(), begin + most);
  log.Seek(begin);
  LogText text(LogText::Form::kInJson);
  const uint64_t most_at_once = kLogPieceBytes / text.most_per_byte();
  const absl::StatusOr<proto::LogPiece> piece =
      log.Next(static_cast<uint32_t>(std::min(until - begin, most_at_once)));
  if (!piece.ok()) return Failure(piece.status());
  std::string body = kHead;
  if (!is_part && piece->offset() > 0)
    body +=
        text.Words(absl::StrCat("[sheaf: the first ", piece->offset(), " bytes are left out]\n"));
  if (until > begin) body += text.Next(piece->bytes());
  if (until == begin || log.offset() >= until) return Json(body + text.Last() + kTail);
  if (auto refusal = follower_.Refusal()) return *std::move(refusal);
  std::shared_ptr<http::Stream> stream = reply.Open({});
  stream->Write(std::move(body));
  follower_.Add(std::move(stream), {.log = std::move(log), .text = std::move(text), .until = until},
                kTail);
  return http::Response();  // Counts for nothing: the stream is the answer.
}

// Of the counted one X-Sheaf-Offset says which byte is the first.
http::Handler JobServer::Follow(bool is_counted) {
  return OfJob(kNoLogs, [this, is_counted](const Found& job, const http::Request& request,
                                           const http::Reply& reply) {
    if (auto refusal = follower_.Refusal()) return *std::move(refusal);
    const uint64_t wanted = NumberOf(request, "offset", 0);
    NodeLog log = LogOf(job.submission);
    log.Seek(wanted);
    if (is_counted && job.submission.node() != 0) {
      const absl::StatusOr<proto::LogPiece> piece = log.Next(1);
      log.Seek(piece.ok() ? piece->offset() : wanted);
    }
    http::Response head;
    head.content_type = "text/plain; charset=utf-8";
    head.headers.emplace_back("X-Sheaf-Offset", absl::StrCat(log.offset()));
    follower_.Add(reply.Open(std::move(head)),
                  {.log = std::move(log),
                   .submission_id = job.submission.entrypoint().submission_id(),
                   .is_counted = is_counted});
    return http::Response();  // Counts for nothing: the stream is the answer.
  });
}

}  // namespace sheaf::dashboard
