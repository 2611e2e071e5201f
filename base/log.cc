// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/text/ecs.h"
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

// As log.level has it.
const char* NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    default:
      return "error";
  }
}

struct Logger {
  spdlog::logger to;
  std::string json_dataset;  // Empty: lines are text.
};

std::shared_ptr<Logger> MakeLogger(spdlog::sink_ptr sink, const LogOptions& options) {
  auto logger =
      std::make_shared<Logger>(spdlog::logger("sheaf", std::move(sink)), options.json_dataset);
  logger->to.set_level(spdlog::level::debug);  // LogEnabled has filtered already.
  const std::string process = options.process.empty() ? "" : options.process + " ";
  logger->to.set_pattern(options.json_dataset.empty() ? "%Y-%m-%d %H:%M:%S.%e %L " + process + "%v"
                                                      : "%v");
  // What a process that is killed has said is there, and who follows a log sees each line.
  logger->to.flush_on(spdlog::level::info);
  return logger;
}

struct Current {
  Mutex mutex;
  // The pointer is guarded, not the logger: that has a lock of its own.
  std::shared_ptr<Logger> logger ABSL_GUARDED_BY(mutex) =
      MakeLogger(std::make_shared<spdlog::sinks::stderr_sink_mt>(), {});
};
Current& TheCurrent() {
  static Current& current = *new Current;  // Never destroyed: threads log while the process ends.
  return current;
}

std::shared_ptr<Logger> Share() {
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
  auto logger = MakeLogger(std::move(sink), options);
  Current& current = TheCurrent();
  const MutexLock lock(current.mutex);
  current.logger = std::move(logger);
  internal::log_level.store(options.level, std::memory_order_relaxed);
  return absl::OkStatus();
}

void FlushLog() { Share()->to.flush(); }

void internal::WriteLog(LogLevel level, std::string_view line) {
  const std::shared_ptr<Logger> logger = Share();
  std::string json;
  if (!logger->json_dataset.empty()) {
    json = EcsLine({.unix_ns = UnixNow(),
                    .level = NameOf(level),
                    .message = line,
                    .dataset = logger->json_dataset,
                    .os_pid = getpid()});
    line = json;
  }
  logger->to.log(ToSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace sheaf
