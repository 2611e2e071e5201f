// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/asker.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"

namespace sheaf::dashboard {
namespace {

http::Response Guarded(const std::function<http::Response()>& work) {
  try {
    return work();
  } catch (const std::exception& failure) {  // Out of memory, for one: of this request only.
    Log(LogLevel::kError, "dashboard: ", failure.what());
    return http::PlainText(500, "The dashboard has failed at this; its log says how.");
  }
}

}  // namespace

absl::StatusOr<proto::StateAnswer> Asked(const AskNode& ask, const proto::StateQuery& query,
                                         Nanos timeout) {
  SHEAF_ASSIGN_OR_RETURN(proto::StateAnswer answer, ask(query, timeout));
  if (!answer.error().empty()) return absl::NotFoundError(answer.error());
  return answer;
}

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAborted:  // Its node has died.
      return 404;
    default:
      return 503;
  }
}

Asker::~Asker() {
  std::vector<Worker> workers;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    workers.swap(workers_);
  }
  for (Worker& worker : workers) worker.thread->Stop();
}

void Asker::Answer(const http::Reply& reply, std::function<http::Response()> work) {
  const MutexLock lock(mutex_);
  if (stopping_ || pending_ >= kAskedAtOnce + kWaiting) {
    return reply.Send(http::PlainText(429, "Too many requests wait for the cluster already."));
  }
  auto least = std::min_element(workers_.begin(), workers_.end(),
                                [](const auto& a, const auto& b) { return a.pending < b.pending; });
  if ((least == workers_.end() || least->pending > 0) && workers_.size() < kAskedAtOnce) {
    workers_.push_back({0, std::make_unique<ThreadExecutor>("sheaf-ask")});
    least = std::prev(workers_.end());
  }
  const size_t place = static_cast<size_t>(least - workers_.begin());
  ++pending_;
  ++least->pending;
  least->thread->Post([this, place, reply, work = std::move(work)] {
    bool drop = false;
    {
      const MutexLock inner(mutex_);
      drop = stopping_;
    }
    if (drop) return;
    reply.Send(Guarded(work));
    const MutexLock inner(mutex_);
    if (stopping_) return;
    --pending_;
    --workers_[place].pending;
  });
}

void AddQuestion(http::Router& router, Asker& asker, const char* pattern, AnswerRequest work) {
  router.Add({.method = "GET",
              .pattern = pattern,
              .handler = [&asker, work](const http::Request& request, const http::Reply& reply) {
                asker.Answer(reply, [&asker, work, request] {
                  absl::StatusOr<http::Response> response = work(asker.ask(), request);
                  if (response.ok()) return *std::move(response);
                  return http::PlainText(HttpStatusOf(response.status()),
                                         std::string(response.status().message()));
                });
              }});
}

std::string Parameter(const http::Request& request, std::string_view name) {
  return std::string(request.Query(name).value_or(""));
}

}  // namespace sheaf::dashboard
