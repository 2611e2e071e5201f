// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/observe/tar_file.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/testing/scratch_directory_for_test.h"
#include "dashboard/observe/gzip.h"

namespace sheaf::cli {
namespace {

SCENARIO("tar unpacks what was packed, whatever it is and however it is called") {
  TarFile tar(1'700'000'000);
  const std::string all(1000, '\xff');
  tar.Add("dump/empty", "");
  tar.Add("dump/block", std::string(512, 'x'));
  tar.Add("dump/a b\n;rm", all);
  tar.Add("dump/" + std::string(200, 'n'), "long");
  const ScratchDirectory scratch;
  std::ofstream(scratch / "x.tar.gz", std::ios::binary) << dashboard::Gzip(std::move(tar).Done());
  const std::string command =
      "cd " + scratch.path() + " && tar xzf x.tar.gz 2> errors && test ! -s errors";
  REQUIRE(std::system(command.c_str()) == 0);
  const auto read = [&](const std::string& name) {
    std::ifstream file(scratch / ("dump/" + name), std::ios::binary);
    REQUIRE(file.is_open());
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  CHECK(read("empty").empty());
  CHECK(read("block") == std::string(512, 'x'));
  CHECK(read("a_b__rm") == all);
  CHECK(read(std::string(95, 'n')) == "long");
}

}  // namespace
}  // namespace sheaf::cli
