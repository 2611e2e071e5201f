// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/host_lookup.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/signal_mask.h"

namespace sheaf::http {
namespace {

using Addresses = absl::StatusOr<std::vector<std::string>>;

Addresses Resolve(const std::string& host, int flags) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &wanted, &found); error != 0)
    return absl::UnavailableError(absl::StrCat("'", host, "': ", gai_strerror(error)));
  std::vector<std::string> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) ==
        0)
      addresses.emplace_back(text);
  }
  freeaddrinfo(found);
  if (addresses.empty()) return absl::UnavailableError(absl::StrCat("'", host, "' has no address"));
  return addresses;
}

}  // namespace

struct HostLookup::State {
  Mutex mutex;
  CondVar changed;
  bool cancelled ABSL_GUARDED_BY(mutex) = false;
  uint64_t question ABSL_GUARDED_BY(mutex) = 0;  // The last one; answers to others are late.
  std::optional<Addresses> answer ABSL_GUARDED_BY(mutex);
};

HostLookup::HostLookup() : state_(std::make_shared<State>()) {}
HostLookup::~HostLookup() = default;

Addresses HostLookup::AddressesOf(const std::string& host, Nanos deadline) {
  if (host == "localhost") return std::vector<std::string>{"127.0.0.1", "::1"};
  if (Addresses numeric = Resolve(host, AI_NUMERICHOST); numeric.ok()) return numeric;
  const MutexLock lock(state_->mutex);
  if (state_->cancelled) return absl::CancelledError("the question was given up");
  state_->answer.reset();
  const uint64_t question = ++state_->question;
  {
    const AllSignalsBlocked blocked;
    try {
      std::thread([state = state_, host, question] {
        Addresses found = Resolve(host, 0);
        const MutexLock answering(state->mutex);
        if (state->question == question) state->answer = std::move(found);
        state->changed.NotifyAll();
      }).detach();
    } catch (const std::system_error& error) {  // This process may start no thread more.
      return absl::UnavailableError(
          absl::StrCat("nobody can be asked where '", host, "' is: ", error.what()));
    }
  }
  while (!state_->answer && !state_->cancelled) {
    const Nanos now = MonotonicNow();
    if (now >= deadline)
      return absl::DeadlineExceededError(absl::StrCat("nobody says in time where '", host, "' is"));
    state_->changed.WaitFor(state_->mutex, deadline - now);
  }
  if (state_->cancelled) return absl::CancelledError("the question was given up");
  return *std::exchange(state_->answer, std::nullopt);
}

void HostLookup::Cancel() {
  const MutexLock lock(state_->mutex);
  state_->cancelled = true;
  state_->changed.NotifyAll();
}

}  // namespace sheaf::http
