// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/otlp/span_exporter.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "metrics/catalog.h"
#include "proto/otlp_trace.pb.h"

namespace sheaf::cli {
namespace {

constexpr Nanos kPatience = kSecond;  // Spans are gathered for so long.
constexpr Nanos kFirstPause = kSecond, kLongestPause = 30 * kSecond;

std::string ShownUrl(const http::Url& url) {
  // Without what may be a key.
  return absl::StrCat(url.tls ? "https://" : "http://", url.host, ":", url.port,
                      url.target.substr(0, url.target.find('?')));
}

// Those that OTLP says may be sent again.
bool MayRepeat(int status) {
  return status == 429 || status == 502 || status == 503 || status == 504;
}

}  // namespace

std::unique_ptr<SpanExporter> SpanExporter::OfEnvironment() {
  std::map<std::string, std::string> environment;
  for (const std::string& entry : OwnEnvironment()) {
    const size_t equals = std::min(entry.find('='), entry.size());
    environment.emplace(entry.substr(0, equals), entry.substr(std::min(equals + 1, entry.size())));
  }
  absl::StatusOr<std::optional<OtlpSettings>> settings = OtlpSettingsOf(environment);
  if (settings.ok() && !*settings) return nullptr;
  absl::Status status = settings.status();
  if (status.ok()) {
    (*settings)->resource.emplace_back("process.pid", absl::StrCat(getpid()));
    absl::StatusOr<std::unique_ptr<SpanExporter>> started = Start(**std::move(settings));
    if (started.ok()) return *std::move(started);
    status = started.status();
  }
  // The variables are for all programs of a machine, and may be meant for others.
  Log(LogLevel::kWarning, "no spans of calls are exported: ", status.message());
  return nullptr;
}

absl::StatusOr<std::unique_ptr<SpanExporter>> SpanExporter::Start(OtlpSettings settings) {
  SHEAF_ASSIGN_OR_RETURN(std::unique_ptr<http::Client> client,
                         http::Client::Make(settings.url, settings.authorities));
  Log(LogLevel::kInfo, "spans of calls go to ", ShownUrl(settings.url));
  return std::unique_ptr<SpanExporter>(new SpanExporter(std::move(settings), std::move(client)));
}

SpanExporter::SpanExporter(OtlpSettings settings, std::unique_ptr<http::Client> client)
    : settings_(std::move(settings)), queue_(settings_.sampling), client_(std::move(client)) {
  thread_.Post([this] { Run(); });
}

SpanExporter::~SpanExporter() {
  queue_.Close();
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
    const Nanos until = MonotonicNow() + kLastWords;
    for (Nanos now = 0; reaches_ && !ended_ && (now = MonotonicNow()) < until;)
      changed_.WaitFor(mutex_, until - now);
    gives_up_ = true;
  }
  client_->Cancel();
  thread_.Stop();
}

void SpanExporter::PublishMetrics(metrics::Page& page) const {
  page.counter(metrics::CounterId::kSpansExported).store(queue_.sent(), std::memory_order_relaxed);
  page.counter(metrics::CounterId::kSpansDropped)
      .store(queue_.dropped(), std::memory_order_relaxed);
}

void SpanExporter::Run() {
  while (true) {
    const std::vector<telemetry::CallSpan> spans = queue_.Take(kPatience);
    if (spans.empty()) break;
    bool gives_up = false;
    {
      const MutexLock lock(mutex_);
      gives_up = gives_up_;
    }
    gives_up ? queue_.CountDropped(spans.size()) : Send(spans);
  }
  const MutexLock lock(mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

// Spans that come meanwhile wait in the queue, and are dropped there when it is full.
void SpanExporter::Send(const std::vector<telemetry::CallSpan>& spans) {
  http::Question question{"POST", settings_.headers, {}};
  question.headers.emplace_back("Content-Type", "application/x-protobuf");
  question.body = telemetry::EncodeSpans(spans, settings_.resource, UnixNow() - MonotonicNow());
  const Nanos give_up_at = MonotonicNow() + settings_.patience;
  for (Nanos pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    Nanos wanted = pause;
    const absl::Status sent = SendOnce(question, spans.size(), &wanted);
    bool reached_before = false;
    {
      const MutexLock lock(mutex_);
      reached_before = std::exchange(reaches_, sent.ok());
    }
    if (sent.ok()) {
      if (!reached_before) Log(LogLevel::kInfo, "spans reach ", ShownUrl(settings_.url), " again");
      return;
    }
    const bool again = (absl::IsUnavailable(sent) || absl::IsDeadlineExceeded(sent)) &&
                       MonotonicNow() < give_up_at;
    if (reached_before && !absl::IsCancelled(sent)) {
      Log(LogLevel::kWarning, "spans do not reach ", ShownUrl(settings_.url), ": ", sent.message(),
          "; calls go on without them");
    }
    if (!again || !Pause(std::min(wanted, kLongestPause))) return queue_.CountDropped(spans.size());
  }
}

absl::Status SpanExporter::SendOnce(const http::Question& question, size_t spans, Nanos* pause) {
  SHEAF_ASSIGN_OR_RETURN(const http::Answer answer, client_->Ask(question, settings_.timeout));
  if (answer.status / 100 == 2) {
    proto::otlp::ExportTraceServiceResponse response;
    int64_t rejected = 0;
    if (response.ParseFromString(answer.body))
      rejected = response.partial_success().rejected_spans();
    const size_t refused =
        static_cast<size_t>(std::clamp<int64_t>(rejected, 0, static_cast<int64_t>(spans)));
    queue_.CountDropped(refused);
    queue_.CountSent(spans - refused);
    return absl::OkStatus();
  }
  const std::string what = absl::StrCat("it answers ", answer.status, ": ",
                                        absl::CHexEscape(answer.body.substr(0, 200)));
  if (!MayRepeat(answer.status)) return absl::FailedPreconditionError(what);
  int64_t seconds = 0;
  if (absl::SimpleAtoi(answer.retry_after, &seconds) && seconds > 0)
    *pause = std::min<int64_t>(seconds, kLongestPause / kSecond) * kSecond;
  return absl::UnavailableError(what);
}

bool SpanExporter::Pause(Nanos pause) {
  const Nanos until = MonotonicNow() + pause;
  const MutexLock lock(mutex_);
  for (Nanos now = 0; !ending_ && (now = MonotonicNow()) < until;)
    changed_.WaitFor(mutex_, until - now);
  return !ending_;
}

}  // namespace sheaf::cli
