// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/observe/redaction.h"

#include <catch2/catch.hpp>

namespace sheaf::cli {
namespace {

SCENARIO("secrets are nowhere in a text, the longer one first where one is a part of another") {
  Redaction redaction;
  redaction.Hide("abcdefgh");
  redaction.Hide("  abcdefghij\n");
  redaction.Hide("short");
  redaction.Hide("");
  CHECK(redaction.Apply("x abcdefghij y abcdefgh z short") == "x <redacted> y <redacted> z short");
}

SCENARIO("variables that are named as secrets are hidden wherever their values turn up") {
  Redaction redaction;
  redaction.HideIn({"AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI", "DB_PASSWORD=hunter22",
                    "SHEAF_TOKEN_FILE=/etc/token-file", "HOME=/home/someone", "NONSENSE",
                    "MY_API_KEY=12345678"});
  CHECK(redaction.Apply("key wJalrXUtnFEMI, hunter22, /etc/token-file, /home/someone, 12345678") ==
        "key <redacted>, <redacted>, /etc/token-file, /home/someone, <redacted>");
}

SCENARIO("of variables only Sheaf's own settings are shown with their values") {
  CHECK(Redaction::ShowVariables({"SHEAF_TOKEN=feed", "SHEAF_LOG_LEVEL=debug", "PATH=/bin",
                                  "RAY_ADDRESS=auto", "", "=x", "ALONE",
                                  "SHEAF_RUNTIME_ENVIRONMENT=40656e76"}) ==
        "ALONE=<redacted>\nPATH=<redacted>\nRAY_ADDRESS=auto\nSHEAF_LOG_LEVEL=debug\n"
        "SHEAF_RUNTIME_ENVIRONMENT=<redacted>\nSHEAF_TOKEN=<redacted>\n");
}

}  // namespace
}  // namespace sheaf::cli
