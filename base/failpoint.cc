// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/failpoint.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

enum class Action : uint8_t { kKill, kExit, kSleep, kError };

struct Entry {
  std::string name;
  Action action = Action::kError;
  int sleep_ms = 0;
  uint64_t at = 0;  // The pass at which it acts; 0: by chance.
  double probability = 0;
  SeededRandom random{0};
  uint64_t passes = 0;
};

struct Armed {
  Mutex mutex;
  std::vector<Entry> entries ABSL_GUARDED_BY(mutex);
};
Armed& TheArmed() {
  static Armed& armed = *new Armed;  // Never destroyed: threads may outlive main.
  return armed;
}

absl::Status Malformed(absl::string_view entry) {
  return absl::InvalidArgumentError(absl::StrCat(
      "SHEAF_FAILPOINT '", entry,
      "': want NAME:ACTION@N or NAME:ACTION%P:SEED with ACTION kill, exit, error or sleep(MS)"));
}

bool ParseAction(absl::string_view text, Entry& entry) {
  if (text == "kill") {
    entry.action = Action::kKill;
  } else if (text == "exit") {
    entry.action = Action::kExit;
  } else if (text == "error") {
    entry.action = Action::kError;
  } else if (absl::ConsumePrefix(&text, "sleep(") && absl::ConsumeSuffix(&text, ")")) {
    entry.action = Action::kSleep;
    return absl::SimpleAtoi(text, &entry.sleep_ms) && entry.sleep_ms >= 0;
  } else {
    return false;
  }
  return true;
}

absl::StatusOr<Entry> ParseEntry(absl::string_view text, uint64_t salt) {
  Entry entry;
  const size_t colon = text.find(':');
  const size_t mark = text.find_first_of("@%", colon);
  if (colon == 0 || colon == absl::string_view::npos || mark == absl::string_view::npos ||
      !ParseAction(text.substr(colon + 1, mark - colon - 1), entry)) {
    return Malformed(text);
  }
  entry.name = std::string(text.substr(0, colon));
  const absl::string_view when = text.substr(mark + 1);
  if (text[mark] == '@') {
    if (!absl::SimpleAtoi(when, &entry.at) || entry.at == 0) return Malformed(text);
    return entry;
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(when, ':');
  uint64_t seed = 0;
  if (parts.size() != 2 || !absl::SimpleAtod(parts[0], &entry.probability) ||
      entry.probability < 0 || entry.probability > 1 || !absl::SimpleAtoi(parts[1], &seed)) {
    return Malformed(text);
  }
  entry.random = SeededRandom(SeededRandom(seed).Next() ^ salt);
  return entry;
}

bool Acts(Entry& entry) {
  ++entry.passes;
  if (entry.at != 0) return entry.passes == entry.at;
  constexpr double kScale = 1.0 / 18446744073709551616.0;  // 2^-64.
  return static_cast<double>(entry.random.Next()) * kScale < entry.probability;
}

}  // namespace

absl::Status ArmFailpoints(std::string_view text, uint64_t salt) {
  std::vector<Entry> parsed;
  for (absl::string_view part :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ',', absl::SkipEmpty())) {
    SHEAF_ASSIGN_OR_RETURN(parsed.emplace_back(), ParseEntry(part, salt));
  }
  Armed& armed = TheArmed();
  const MutexLock lock(armed.mutex);
  internal::failpoints_armed.store(!parsed.empty(), std::memory_order_relaxed);
  armed.entries = std::move(parsed);
  return absl::OkStatus();
}

absl::Status internal::PassFailpoint(std::string_view name) {
  int sleep_ms = 0;
  bool error = false;
  {
    Armed& armed = TheArmed();
    const MutexLock lock(armed.mutex);
    for (Entry& entry : armed.entries) {
      if (entry.name != name || !Acts(entry)) continue;
      switch (entry.action) {
        case Action::kKill:
          kill(getpid(), SIGKILL);
          break;
        case Action::kExit:
          _exit(77);
        case Action::kSleep:
          sleep_ms += entry.sleep_ms;
          break;
        case Action::kError:
          error = true;
          break;
      }
    }
  }
  if (sleep_ms > 0) poll(nullptr, 0, sleep_ms);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("failpoint ", absl::string_view(name.data(), name.size())));
}

}  // namespace sheaf
