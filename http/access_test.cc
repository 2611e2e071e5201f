// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/access.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace sheaf::http {
namespace {

// Who asks, in the order of the columns below.
struct Asker {
  const char* name;
  Caller caller;
};

const std::vector<Asker>& Askers() {
  constexpr Caller kProgram{.trusted_user = true, .host_known = true};
  static const std::vector<Asker> askers = [&] {
    std::vector<Asker> all;
    const auto add = [&](const char* name, auto change) {
      Caller caller = kProgram;
      change(caller);
      all.push_back({name, caller});
    };
    add("own user", [](Caller&) {});
    add("other user", [](Caller& c) { c.trusted_user = false; });
    add("token, other user, unknown Host",
        [](Caller& c) { c = {.credential = Credential::kToken}; });
    add("wrong token of the own user", [](Caller& c) { c.credential = Credential::kWrongToken; });
    add("certificate, other user", [](Caller& c) {
      c.trusted_user = false;
      c.credential = Credential::kCertificate;
    });
    add("rebound Host", [](Caller& c) {
      c.host_known = false;
      c.browser = true;
    });
    const auto page = [](Caller& c) {
      c.browser = c.same_origin_fetch = c.says_site = c.page_header = true;
      c.origin = Origin::kSame;
    };
    add("own page", page);
    add("own page, cookie, other user", [&](Caller& c) {
      page(c);
      c.trusted_user = false;
      c.credential = Credential::kCookie;
    });
    add("own page without its header", [&](Caller& c) {
      page(c);
      c.page_header = false;
    });
    add("own page by an old browser", [&](Caller& c) {
      page(c);
      c.same_origin_fetch = c.says_site = false;
    });
    add("page of another port", [&](Caller& c) {
      page(c);
      c.origin = Origin::kSameHost;
      c.same_origin_fetch = false;
    });
    add("foreign page", [&](Caller& c) {
      page(c);
      c.origin = Origin::kOther;
    });
    add("image in a foreign page", [](Caller& c) { c.browser = c.cross_site = true; });
    add("foreign page with a cookie", [&](Caller& c) {
      page(c);
      c.origin = Origin::kOther;
      c.credential = Credential::kCookie;
    });
    add("WebSocket of another port's page", [](Caller& c) {
      c.browser = c.web_socket = true;
      c.origin = Origin::kSameHost;
    });
    const auto plain = [&](Caller& c) {
      page(c);
      c.same_origin_fetch = c.says_site = c.trusted_user = c.host_known = false;
      c.credential = Credential::kCookie;
    };
    add("own page over plain HTTP, cookie, other user, unknown Host", plain);
    add("the same of another port", [&](Caller& c) {
      plain(c);
      c.origin = Origin::kSameHost;
    });
    add("the same by a form", [&](Caller& c) {
      plain(c);
      c.page_header = false;
    });
    return all;
  }();
  return askers;
}

TEST_CASE("who may what") {
  struct Row {
    const char* name;
    AccessRules rules;
    Right right;
    std::vector<int> statuses;
  };
  constexpr AccessRules kUser{.trust = Trust::kSameUser};
  constexpr AccessRules kAny{.trust = Trust::kAnyLocalUser};
  constexpr AccessRules kToken{.trust = Trust::kTokenOnly};
  constexpr AccessRules kReadOnly{.trust = Trust::kSameUser, .read_only = true};
  constexpr AccessRules kWritable{.trust = Trust::kTokenOnly, .writable_pages = true};
  const std::vector<Row> rows = {
      //                     own  othr tokn wrng cert rebd page cook nohd old  port frgn img  frck wsck plan plpt plfm
      {"loopback, open",
       kUser,
       Right::kOpen,
       {200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200}},
      {"loopback, read",
       kUser,
       Right::kRead,
       {200, 401, 200, 403, 200, 403, 200, 200, 200, 200, 200, 403, 403, 403, 403, 403, 403, 403}},
      {"loopback, change",
       kUser,
       Right::kChange,
       {200, 401, 200, 403, 200, 403, 200, 200, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403}},
      {"read-only, read",
       kReadOnly,
       Right::kRead,
       {200, 401, 200, 403, 200, 403, 200, 200, 200, 200, 200, 403, 403, 403, 403, 403, 403, 403}},
      {"read-only, change",
       kReadOnly,
       Right::kChange,
       {403, 401, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403}},
      {"elsewhere, open",
       kToken,
       Right::kOpen,
       {200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200}},
      {"elsewhere, read",
       kToken,
       Right::kRead,
       {401, 401, 200, 403, 200, 401, 401, 200, 401, 401, 401, 403, 403, 403, 403, 200, 200, 200}},
      {"elsewhere, change",
       kToken,
       Right::kChange,
       {401, 401, 200, 403, 200, 401, 401, 403, 401, 401, 401, 403, 403, 403, 403, 403, 403, 403}},
      {"writable pages, change",
       kWritable,
       Right::kChange,
       {401, 401, 200, 403, 200, 401, 401, 200, 401, 401, 401, 403, 403, 403, 403, 200, 403, 403}},
      {"figures, read",
       kAny,
       Right::kRead,
       {200, 200, 200, 403, 200, 403, 200, 200, 200, 200, 200, 403, 403, 403, 403, 403, 403, 403}},
      {"figures, change",
       kAny,
       Right::kChange,
       {403, 403, 200, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403, 403}},
  };
  for (const Row& row : rows) {
    REQUIRE(row.statuses.size() == Askers().size());
    for (size_t i = 0; i < Askers().size(); ++i) {
      INFO(row.name << ": " << Askers()[i].name);
      const Verdict verdict = Judge(row.rules, row.right, Askers()[i].caller);
      CHECK(verdict.status == row.statuses[i]);
      CHECK(verdict.words.empty() == verdict.allowed());
    }
  }
}

}  // namespace
}  // namespace sheaf::http
