// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/logs/log_events.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "base/testing/scratch_directory_for_test.h"
#include "base/testing/wait_until_for_test.h"
#include "base/text/json_members.h"

namespace sheaf {
namespace log_events_test {

namespace fs = std::filesystem;

struct Fixture {
  ScratchDirectory directory;
  LogFiles files{directory.path()};

  std::string Path(const std::string& name) const { return files.PathOf(name); }
  EventFileOptions Out(int64_t max_bytes = 64 << 20) const {
    return {Path("events.ndjson"), max_bytes, 2};
  }
  void Write(const std::string& text, const std::string& name = "worker-1.2.out") const {
    std::ofstream(Path(name), std::ios::app | std::ios::binary) << text;
  }
  static JsonObject Common() { return JsonObject().Add("node", "1"); }
  static EventSource Source(const std::string& name = "worker-1.2.out") {
    return {name, "sheaf.worker", "info", 77, {{"worker", "1.2"}}, "1.2"};
  }
  std::vector<std::string> Lines(const std::string& name = "events.ndjson") const {
    std::ifstream in(Path(name), std::ios::binary);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) {
      INFO(line.substr(0, 500));
      CHECK(MembersOf(line).has_value());
      lines.push_back(line);
    }
    return lines;
  }
  bool HasLines(size_t count) const {
    return WaitUntil(20 * kSecond, [&] { return Lines().size() == count; });
  }
};

bool Says(const std::string& line, const std::string& message) {
  return absl::StrContains(line, "\"message\":\"" + message + "\"");
}

SCENARIO("each line of each file becomes one event, once it is whole or its writer has ended") {
  Fixture fixture;
  LogEvents events(fixture.files, fixture.Out(), Fixture::Common());
  events.Add(Fixture::Source());
  events.Add(Fixture::Source("worker-1.2.err"));
  fixture.Write("one\nt");
  fixture.Write("wrong\n", "worker-1.2.err");
  events.Look();
  REQUIRE(fixture.HasLines(2));
  fixture.Write("wo\nthree");
  events.Look();
  REQUIRE(fixture.HasLines(3));
  CHECK(Says(fixture.Lines()[2], "two"));
  CHECK(absl::StrContains(fixture.Lines()[2], R"("sheaf":{"node":1,"worker":"1.2"})"));
  events.End("worker-1.2.out");
  REQUIRE(fixture.HasLines(4));
  CHECK(Says(fixture.Lines()[3], "three"));
  events.Stop();
  CHECK(fixture.Lines().size() == 4);
}

SCENARIO("it is behind while it has not read what was moved out of a file") {
  Fixture fixture;
  LogEvents events(fixture.files, fixture.Out(), Fixture::Common());
  events.Add(Fixture::Source());
  fixture.Write("one\n");
  events.Look();
  REQUIRE(fixture.HasLines(1));
  CHECK_FALSE(events.IsBehind("worker-1.2.out"));
  fixture.Write("two\n");
  REQUIRE(fixture.files.Rotate("worker-1.2.out", 1).ok());
  CHECK(events.IsBehind("worker-1.2.out"));
  CHECK_FALSE(events.IsBehind("worker-1.2.err"));  // Nothing reads that.
  events.Look();
  REQUIRE(fixture.HasLines(2));
  CHECK(WaitUntil(20 * kSecond, [&] { return !events.IsBehind("worker-1.2.out"); }));
}

SCENARIO("a line says what is known of its process when it is read, and its last lines, too") {
  Fixture fixture;
  LogEvents events(fixture.files, fixture.Out(), Fixture::Common());
  events.Know("1.2", [] { return EventFields{{"actor", "a"}}; });
  events.Add(Fixture::Source());
  fixture.Write("one\n");
  events.Look();
  REQUIRE(fixture.HasLines(1));
  CHECK(absl::StrContains(fixture.Lines()[0], R"("worker":"1.2","actor":"a"})"));
  events.Know("1.2", [] { return EventFields{{"actor", "b"}}; });
  fixture.Write("two");
  events.End("worker-1.2.out");
  REQUIRE(fixture.HasLines(2));
  CHECK(absl::StrContains(fixture.Lines()[1], R"("worker":"1.2","actor":"b"})"));
}

SCENARIO("hostile lines are events like others") {
  Fixture fixture;
  {
    LogEvents events(fixture.files, fixture.Out(), Fixture::Common());
    events.Add(Fixture::Source());
    std::string text("\0\n\xff\xfe\n\x1b[31mred\n\n", 15);
    text.append(3 << 20, 'x').append("\n{\"message\":\"own\"}\n{\"message\":");
    fixture.Write(text);
  }
  const auto lines = fixture.Lines();
  REQUIRE(lines.size() == 10);  // The long one in three, and the rest of it, which is empty.
  CHECK(Says(lines[0], "\\u0000"));
  CHECK(Says(lines[2], "\\u001b[31mred"));
  CHECK(Says(lines[3], ""));
  CHECK(lines[8].starts_with(R"({"message":"own","@timestamp")"));
  CHECK(Says(lines[9], "{\\\"message\\\":"));
}

SCENARIO("no line is lost or comes twice while the plain file is rotated") {
  Fixture fixture;
  {
    LogEvents events(fixture.files, fixture.Out(), Fixture::Common());
    events.Add(Fixture::Source());
    for (int round = 0; round < 5; ++round) {
      fixture.Write("a" + std::to_string(round) + "\nb" + std::to_string(round) + "\n");
      REQUIRE(fixture.files.Rotate("worker-1.2.out", 9).ok());
      if (round % 2 == 0) events.Look();
    }
  }
  const auto lines = fixture.Lines();
  REQUIRE(lines.size() == 10);
  for (int i = 0; i < 10; ++i)
    CHECK(Says(lines[i], (i % 2 == 0 ? "a" : "b") + std::to_string(i / 2)));
}

SCENARIO("the file of events gets another name when it is long, and nothing is copied") {
  Fixture fixture;
  struct stat before{}, after{};
  EventFile file(fixture.Out(10));
  REQUIRE(file.Append("{}\n").ok());
  REQUIRE(stat(fixture.Path("events.ndjson").c_str(), &before) == 0);
  REQUIRE(file.Append("{\"a\":1}\n").ok());
  REQUIRE(stat(fixture.Path("events.ndjson.1").c_str(), &after) == 0);
  CHECK(before.st_ino == after.st_ino);
  CHECK_FALSE(fs::exists(fixture.Path("events.ndjson")));
  for (int i = 0; i < 4; ++i) REQUIRE(file.Append("{\"long\":true}\n").ok());
  CHECK(fixture.Lines("events.ndjson.2").size() == 1);
  CHECK_FALSE(fs::exists(fixture.Path("events.ndjson.3")));
  REQUIRE(file.Append("{}\n").ok());
  fs::remove(fixture.Path("events.ndjson"));  // By somebody else.
  REQUIRE(file.Append("{}\n").ok());
  CHECK(fixture.Lines().size() == 1);
}

SCENARIO("what the disk does not take is no half of a line, and comes later") {
  Fixture fixture;
  EventFile file(fixture.Out());
  REQUIRE(file.Append("{}\n").ok());
  // A limit on files is a full disk for whoever writes.
  struct rlimit old{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit small{5, old.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const absl::Status refused = file.Append("{\"a\":1}\n");
  const uintmax_t size = fs::file_size(fixture.Path("events.ndjson"));
  REQUIRE(setrlimit(RLIMIT_FSIZE, &old) == 0);
  signal(SIGXFSZ, SIG_DFL);
  CHECK_FALSE(refused.ok());
  CHECK(size == 3);
  REQUIRE(file.Append("{\"a\":1}\n").ok());
  CHECK(fixture.Lines().size() == 2);
}

}  // namespace log_events_test
}  // namespace sheaf
