// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/fetch_session.h"

#include "absl/strings/str_cat.h"
#include "base/text/same_secret.h"

namespace sheaf {
namespace {

Digest MacOf(const Digest& key, const FetchTicket& ticket) {
  return HmacSha256(AsView(key),
                    {"sheaf fetch 1",
                     {reinterpret_cast<const char*>(&ticket.connection), sizeof ticket.connection},
                     {reinterpret_cast<const char*>(&ticket.number), sizeof ticket.number},
                     AsView(ticket.request_hash)});
}

}  // namespace

FetchTicket MakeTicket(const Digest& key, uint64_t connection, uint64_t number,
                       std::string_view request) {
  FetchTicket ticket;
  ticket.connection = connection;
  ticket.number = number;
  ticket.request_hash = Sha256(request);
  ticket.mac = MacOf(key, ticket);
  return ticket;
}

Digest ProofOfAnswerer(const Digest& key, uint64_t connection, bool dialled, const Digest& nonce) {
  return HmacSha256(AsView(key), {"sheaf blocks 1",
                                  dialled ? "dialler" : "acceptor",
                                  {reinterpret_cast<const char*>(&connection), sizeof connection},
                                  AsView(nonce)});
}

absl::Status FetchSession::Check(const FetchTicket& ticket) {
  if (!SameSecret(AsView(ticket.mac), AsView(MacOf(key_, ticket)))) {
    return absl::UnauthenticatedError("a fetch by somebody who is not the other end of a link");
  }
  const uint64_t number = ticket.number;
  if (number == 0 || number + kWindow <= highest_ ||
      (number <= highest_ && seen_.test(number % kWindow))) {
    return absl::UnauthenticatedError(absl::StrCat("fetch ", number, " comes a second time"));
  }
  if (number > highest_) {
    if (number - highest_ >= kWindow) {
      seen_.reset();
    } else {
      for (uint64_t gone = highest_ + 1; gone <= number; ++gone) seen_.reset(gone % kWindow);
    }
    highest_ = number;
  }
  seen_.set(number % kWindow);
  return absl::OkStatus();
}

}  // namespace sheaf
