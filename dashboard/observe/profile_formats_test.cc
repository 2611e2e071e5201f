// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/observe/profile_formats.h"

#include <catch2/catch.hpp>

#include "base/utf8.h"
#include "dashboard/observe/flame_graph.h"
#include "dashboard/observe/gzip.h"
#include "http/json.h"
#include "proto/pprof.pb.h"

namespace sheaf::dashboard {
namespace profile_formats_test {

void Add(proto::StateAnswer& answer, uint32_t parent, const char* function, uint64_t self_us) {
  proto::ProfileNode& node = *answer.add_profile();
  node.set_parent(parent);
  node.set_function(function);
  node.set_file("/home/x/job.py");
  node.set_line(7);
  node.set_job(3);
  node.set_self_us(self_us);
}

// main took 3 s: 1 s itself, and g, which h called, 2 s; another h nothing.
proto::StateAnswer Sample() {
  proto::StateAnswer answer;
  Add(answer, 0, "main", 1'000'000);
  Add(answer, 1, "h", 0);
  Add(answer, 2, "g", 2'000'000);
  Add(answer, 0, "h;<i>", 0);
  return answer;
}

SCENARIO("a profile as folded stacks has a line for each function that took time itself") {
  CHECK(FormatProfile(Sample(), ProfileFormat::kFolded, 0, 1) ==
        "main (job.py:7) 1000000\n"
        "main (job.py:7);h (job.py:7);g (job.py:7) 2000000\n");
}

SCENARIO("a profile for people is a tree with parts of the whole") {
  const std::string text = FormatProfile(Sample(), ProfileFormat::kText, 0, 1);
  CHECK(text.find("      3.00 100.0%  main (job.py:7)\n"
                  "      2.00  66.7%    h (job.py:7)\n"
                  "      2.00  66.7%      g (job.py:7)\n") != std::string::npos);
}

SCENARIO("a profile for speedscope has frames once, and stacks with their weights") {
  const auto value = http::ParseJson(FormatProfile(Sample(), ProfileFormat::kSpeedscope, 0, 1));
  REQUIRE(value.ok());
  CHECK(value->at("shared").at("frames").as_array().size() == 4);
  const auto& profile = value->at("profiles").at(0);
  CHECK(profile.at("endValue") == 3'000'000);
  CHECK(profile.at("samples").at(1) == boost::json::array{0, 1, 2});
  CHECK(profile.at("weights").at(1) == 2'000'000);
}

SCENARIO("a profile as JSON names parents by their places") {
  const auto value = http::ParseJson(FormatProfile(Sample(), ProfileFormat::kJson, 0, 1));
  REQUIRE(value.ok());
  const auto& functions = value->at("functions");
  CHECK(functions.at(0).at("parent").is_null());
  CHECK(functions.at(2).at("parent") == 1);
  CHECK(functions.at(2).at("self_us") == 2'000'000);
  CHECK(functions.at(2).at("job") == 3);
}

SCENARIO("a flame graph is as wide as the whole, and shows names as text") {
  const std::string svg = FlameGraphSvg(Sample());
  CHECK(svg.find("main (/home/x/job.py:7), 3.00 s, 100.0 %") != std::string::npos);
  CHECK(svg.find("g (/home/x/job.py:7), 2.00 s, 66.7 %") != std::string::npos);
  CHECK(svg.find("<i>") == std::string::npos);
  CHECK(FlameGraphSvg({}).starts_with("<svg"));
}

SCENARIO("a flame graph cuts names between characters, and escapes them once") {
  proto::StateAnswer answer;
  Add(answer, 0, "main", 900'000);
  Add(answer, 0,
      "gr\xc3\xb6\xc3\x9f"
      "e",
      3'000);  // 1200 pixels of 1 s: 3 letters in 3.6.
  Add(answer, 0, "\xc3\xb6\xc3\xb6\xc3\xb6\xc3\xb6\xc3\xb6", 25'000);  // 4 of 5.
  Add(answer, 0, "<a>&\tb", 72'000);
  Add(answer, 0, "bad\xff", 0);
  const std::string svg = FlameGraphSvg(answer);
  CHECK(IsUtf8(svg));
  CHECK(svg.find(">\xc3\xb6\xc3\xb6\xc3\xb6\xc3\xb6</text>") != std::string::npos);
  CHECK(svg.find(">&lt;a&gt;&amp;\\tb</text>") != std::string::npos);
}

SCENARIO("parents that come behind their children, or are not there, are none") {
  proto::StateAnswer mad;
  Add(mad, 2, "a", 1);
  Add(mad, 1, "b", 1);
  Add(mad, 99, "c", 1);
  Add(mad, 4, "d", 1);
  for (const ProfileFormat format :
       {ProfileFormat::kText, ProfileFormat::kJson, ProfileFormat::kFolded, ProfileFormat::kSvg,
        ProfileFormat::kSpeedscope, ProfileFormat::kPprof}) {
    CHECK_FALSE(FormatProfile(mad, format, 0, 1).empty());
  }
}

}  // namespace profile_formats_test
}  // namespace sheaf::dashboard
