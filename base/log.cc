// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <sys/stat.h>

#include <memory>

#include "base/mutex.h"
#include "spdlog/logger.h"
#include "spdlog/sinks/rotating_file_sink.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace sheaf {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

std::shared_ptr<spdlog::logger> MakeLogger(spdlog::sink_ptr sink, const std::string& process) {
  auto logger = std::make_shared<spdlog::logger>("sheaf", std::move(sink));
  logger->set_level(spdlog::level::debug);  // LogEnabled has filtered already.
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %L " + (process.empty() ? "" : process + " ") + "%v");
  logger->flush_on(spdlog::level::warn);
  return logger;
}

struct Current {
  Mutex mutex;
  // The pointer is guarded, not the logger: that has a lock of its own.
  std::shared_ptr<spdlog::logger> logger ABSL_GUARDED_BY(mutex) =
      MakeLogger(std::make_shared<spdlog::sinks::stderr_sink_mt>(), "");
};
Current& TheCurrent() {
  static Current& current = *new Current;  // Never destroyed: threads log while the process ends.
  return current;
}

std::shared_ptr<spdlog::logger> Share() {
  Current& current = TheCurrent();
  const MutexLock lock(current.mutex);
  return current.logger;
}

}  // namespace

absl::Status StartLog(const LogOptions& options) {
  spdlog::sink_ptr sink;
  if (options.file.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    try {
      sink = std::make_shared<spdlog::sinks::rotating_file_sink_mt>(options.file, options.max_bytes,
                                                                    1);
    } catch (const spdlog::spdlog_ex& error) {
      return absl::UnavailableError(
          absl::StrCat("cannot log to ", options.file, ": ", error.what()));
    }
    chmod(options.file.c_str(), 0600);
  }
  auto logger = MakeLogger(std::move(sink), options.process);
  Current& current = TheCurrent();
  const MutexLock lock(current.mutex);
  current.logger = std::move(logger);
  internal::log_level.store(options.level, std::memory_order_relaxed);
  return absl::OkStatus();
}

void FlushLog() { Share()->flush(); }

void internal::WriteLog(LogLevel level, std::string_view line) {
  Share()->log(ToSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace sheaf
