// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/page/page_routes.h"

#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "dashboard/observe/gzip.h"
#include "dashboard/page/files.h"

namespace sheaf::dashboard {
namespace {

// "gzip" among what the client takes, and not only with the weight 0.
bool TakesGzip(const http::Request& request) {
  const std::string_view takes = request.Header("accept-encoding");
  const size_t at = takes.find("gzip");
  return at != std::string_view::npos && takes.substr(at, 8) != "gzip;q=0";
}

http::Handler Serve(const PageFile& file) {
  const std::string tag = absl::StrCat("\"", absl::Hex(Crc32c(file.bytes), absl::kZeroPad8), "-",
                                       file.bytes.size(), "\"");
  return [file, tag, packed = Gzip(file.bytes)](const http::Request& request,
                                                const http::Reply& reply) {
    http::Response response{.content_type = file.content_type};
    // Asked for anew each time, so that a page and its server are of one version.
    response.headers = {{"Cache-Control", "no-cache"}, {"ETag", tag}, {"Vary", "Accept-Encoding"}};
    if (request.Header("if-none-match").find(tag) != std::string_view::npos) {
      response.status = 304;
    } else if (TakesGzip(request)) {
      response.headers.emplace_back("Content-Encoding", "gzip");
      response.body = packed;
    } else {
      response.body = file.bytes;
    }
    reply.Send(std::move(response));
  };
}

// What a page of Ray's own dashboard asks for, and where it is here.
struct Elsewhere {
  const char* pattern;
  const char* here;
};
constexpr Elsewhere kElsewhere[] = {{"/nodes", "/api/sheaf/nodes"},
                                    {"/logical/actors", "/api/sheaf/actors"},
                                    {"/events", "/api/sheaf/events"},
                                    {"/api/data/{rest*}", "/api/sheaf/objects"},
                                    {"/api/train/{rest*}", "/api/sheaf/train_runs"}};

http::Handler Refer(const Elsewhere& elsewhere, http::Handler page) {
  return [elsewhere, page = std::move(page)](http::Request request, http::Reply reply) {
    const bool is_page =
        std::string_view(elsewhere.pattern) == "/nodes" && !request.Query("view").has_value();
    if (is_page) return page(std::move(request), std::move(reply));
    reply.Send(http::PlainText(
        404, absl::StrCat("This is a route of Ray's own page; here it is ", elsewhere.here, ".")));
  };
}

}  // namespace

void AddPageRoutes(http::Router& router) {
  for (const PageFile& file : PageFiles()) {
    const bool is_page = file.name == "index.html";
    if (is_page) {
      router.AddPages(Serve(file));
      for (const Elsewhere& elsewhere : kElsewhere) {
        router.Add({.method = "GET",
                    .pattern = elsewhere.pattern,
                    .right = http::Right::kOpen,
                    .handler = Refer(elsewhere, Serve(file))});
      }
      router.Add({.method = "GET",
                  .pattern = "/memory_profile",
                  .right = http::Right::kOpen,
                  .handler = [](const http::Request&, const http::Reply& reply) {
                    reply.Send(http::PlainText(
                        501,
                        "Memory profiles are not made here; /api/sheaf/series says how much memory "
                        "each process uses, and /api/sheaf/objects what objects take."));
                  }});
    }
    router.Add({.method = "GET",
                .pattern = is_page ? std::string("/") : "/assets/" + std::string(file.name),
                .right = http::Right::kOpen,
                .handler = Serve(file)});
  }
}

}  // namespace sheaf::dashboard
