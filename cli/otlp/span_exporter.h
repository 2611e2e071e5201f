// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Sends the spans of a node's calls to a receiver of OTLP. A thread of its own waits for the
// receiver: calls and the node's loop never do, nor does the end of the node.
#pragma once

#include <memory>
#include <vector>

#include "base/executor.h"
#include "base/mutex.h"
#include "cli/otlp/settings.h"
#include "http/client.h"
#include "metrics/page.h"
#include "telemetry/span_queue.h"

namespace sheaf::cli {

class SpanExporter {
 public:
  // As the environment of this process says; nullptr: nothing is exported, of which the log has the
  // reason where a value there cannot be used.
  static std::unique_ptr<SpanExporter> OfEnvironment();
  static absl::StatusOr<std::unique_ptr<SpanExporter>> Start(OtlpSettings settings);
  // A receiver that answered the last time gets what is left, for kLastWords at most; the rest is
  // dropped.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  telemetry::SpanQueue& queue() { return queue_; }
  void PublishMetrics(metrics::Page& page) const;

  static constexpr Nanos kLastWords = 200 * kMillisecond;

 private:
  SpanExporter(OtlpSettings settings, std::unique_ptr<http::Client> client);
  void Run();
  void Send(const std::vector<telemetry::CallSpan>& spans);
  // kUnavailable, kDeadlineExceeded: it may be tried again, after `*pause`, if the receiver says so.
  absl::Status SendOnce(const http::Question& question, size_t spans, Nanos* pause);
  // False: the exporter ends.
  bool Pause(Nanos pause);

  const OtlpSettings settings_;
  telemetry::SpanQueue queue_;
  const std::unique_ptr<http::Client> client_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool reaches_ ABSL_GUARDED_BY(mutex_) = true;    // The receiver answered the last time.
  bool gives_up_ ABSL_GUARDED_BY(mutex_) = false;  // What is left is dropped.
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;     // Run has returned.
  ThreadExecutor thread_{"sheaf-spans"};           // Last: it uses all the others.
};

}  // namespace sheaf::cli
