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

}  // namespace

void AddPageRoutes(http::Router& router) {
  for (const PageFile& file : PageFiles()) {
    const bool is_page = file.name == "index.html";
    if (is_page) router.AddPages(Serve(file));
    router.Add({.method = "GET",
                .pattern = is_page ? std::string("/") : "/assets/" + std::string(file.name),
                .right = http::Right::kOpen,
                .handler = Serve(file)});
  }
}

}  // namespace sheaf::dashboard
