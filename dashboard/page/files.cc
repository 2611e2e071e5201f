// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/page/files.h"

// SHEAF_PAGE_DIR is set for this file, which is compiled anew when one of those changes
// (dashboard/CMakeLists.txt).
#define SHEAF_EMBED(symbol, file)                                                          \
  asm(".pushsection .rodata\n.balign 16\n" #symbol ":\n.incbin \"" SHEAF_PAGE_DIR "/" file \
      "\"\n" #symbol "_end:\n.byte 0\n.popsection\n");                                     \
  extern "C" const char symbol[], symbol##_end[];

SHEAF_EMBED(sheaf_page_index, "index.html")
SHEAF_EMBED(sheaf_page_script, "app.js")
SHEAF_EMBED(sheaf_page_style, "app.css")
SHEAF_EMBED(sheaf_page_icon, "icon.svg")

namespace sheaf::dashboard {
namespace {

std::string_view Between(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

std::array<PageFile, 4> PageFiles() {
  return {
      {{"index.html", "text/html; charset=utf-8", Between(sheaf_page_index, sheaf_page_index_end)},
       {"app.js", "text/javascript; charset=utf-8",
        Between(sheaf_page_script, sheaf_page_script_end)},
       {"app.css", "text/css; charset=utf-8", Between(sheaf_page_style, sheaf_page_style_end)},
       {"icon.svg", "image/svg+xml", Between(sheaf_page_icon, sheaf_page_icon_end)}}};
}

}  // namespace sheaf::dashboard
