// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/service/joining.h"

#include <poll.h>

#include <array>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "http/host_lookup.h"
#include "rpc/listen_address.h"
#include "rpc/route_address.h"

namespace sheaf::cli {
namespace {

constexpr Nanos kLookPeriod = 20 * kMillisecond;
constexpr Nanos kFirstPause = 100 * kMillisecond;
constexpr Nanos kLongestPause = 5 * kSecond;
constexpr Nanos kPatience = 5 * kSecond;  // Of who starts the node, before something is said.

// Whether `fd` can be read, or its other end is closed.
bool Has(const pollfd& fd) { return fd.fd >= 0 && fd.revents != 0; }

absl::StatusOr<std::string> OwnAddress(http::HostLookup& lookup, const ListenAddress& head,
                                       Nanos until) {
  const auto found = lookup.AddressesOf(head.host, until);
  if (!found.ok()) {
    return absl::UnavailableError(
        absl::StrCat("no address is known for ", head.host, ": ", found.status().message()));
  }
  absl::Status none;
  for (const std::string& address : *found) {
    absl::StatusOr<std::string> way = AddressOnTheWayTo({address, head.port});
    if (way.ok()) return way;
    none = way.status();
  }
  return none;
}

}  // namespace

Joining::Joining(std::string head, Nanos limit, int signals, int parent)
    : head_(std::move(head)), limit_(limit), signals_(signals), parent_(parent) {}

absl::Status Joining::Wanted() const { return Pause(0); }

absl::Status Joining::Pause(Nanos longest) const {
  std::array<pollfd, 2> ends = {{{signals_, POLLIN, 0}, {parent_, POLLIN, 0}}};
  if (poll(ends.data(), ends.size(), static_cast<int>(longest / kMillisecond)) <= 0) {
    return absl::OkStatus();
  }
  // Nothing is ever written to that pipe; the other end is closed.
  return absl::CancelledError(Has(ends[1]) ? "the program that started it is over"
                                           : "a signal ended it before it had joined " + head_);
}

absl::StatusOr<std::string> Joining::AwaitWay() const {
  SHEAF_ASSIGN_OR_RETURN(const ListenAddress head, ParseListenAddress(head_));
  http::HostLookup lookup;
  ThreadExecutor watch({"sheaf-joining", kLookPeriod, [&] {
                          if (!Wanted().ok()) lookup.Cancel();
                        }});
  Nanos pause = kFirstPause;
  Nanos until = std::min(deadline_, MonotonicNow() + kPatience);  // Before something is said.
  while (true) {
    const absl::StatusOr<std::string> way = OwnAddress(lookup, head, until);
    if (way.ok()) return way;
    SHEAF_RETURN_IF_ERROR(Wanted());
    const std::string why(way.status().message());
    if (left() == 0) return Late(why);
    if (std::exchange(until, deadline_) != deadline_) Say(why);
    SHEAF_RETURN_IF_ERROR(Pause(std::min(pause, left())));
    pause = std::min(2 * pause, kLongestPause);
  }
}

absl::Status Joining::Run(const std::function<absl::Status()>& join,
                          const std::function<void(absl::Status)>& refuse) const {
  const Nanos patient_until = MonotonicNow() + std::min(kPatience, limit_ / 2);
  ThreadExecutor watch({"sheaf-joining", kLookPeriod, [&, said = false]() mutable {
                          absl::Status wanted = Wanted();
                          if (!wanted.ok()) return refuse(std::move(wanted));
                          if (said || MonotonicNow() < patient_until) return;
                          said = true;
                          Say(WhySilent());
                        }});
  const absl::Status joined = join();
  return absl::IsDeadlineExceeded(joined) ? Late(WhySilent()) : joined;
}

absl::Status Joining::Refused(const absl::Status& why) const {
  return absl::Status(why.code(), absl::StrCat("cannot join ", head_, ": ", why.message()));
}

void Joining::OnUnreachable(std::string why) {
  const MutexLock lock(mutex_);
  unreachable_ = std::move(why);
}

std::string Joining::WhySilent() const {
  const MutexLock lock(mutex_);
  return unreachable_.empty() ? "it does not answer" : unreachable_;
}

void Joining::Say(const std::string& why) const {
  const std::string words = absl::StrCat("the node waits for the head ", head_, ", for ",
                                         left() / kSecond, " s more (--timeout): ", why);
  Log(LogLevel::kWarning, words);
  std::fprintf(stderr, "sheaf: %s.\n", words.c_str());
}

absl::Status Joining::Late(const std::string& why) const {
  return absl::DeadlineExceededError(absl::StrCat("the head ", head_,
                                                  " could not be joined within ", limit_ / kSecond,
                                                  " s (--timeout): ", why));
}

}  // namespace sheaf::cli
