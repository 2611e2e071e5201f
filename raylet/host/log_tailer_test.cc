// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/log_tailer.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/testing/scratch_directory_for_test.h"

namespace sheaf {
namespace log_tailer_test {

namespace fs = std::filesystem;

constexpr ProcessId kDriver{1, 1};

// A log directory with one worker's files, written as the worker does: appending.
struct Fixture {
  Fixture() : Fixture(LogTailerOptions{}) {}
  explicit Fixture(LogTailerOptions options) {
    tailer = std::make_unique<LogTailer>(files, options);
    Add(2);
  }
  std::string Path(uint32_t number, const char* extension) const {
    return directory.path() + "/worker-1." + std::to_string(number) + extension;
  }
  void Add(uint32_t number) {
    tailer->Add({{1, number}, kDriver, 1, 4711, 0, Path(number, ".out"), Path(number, ".err")});
    Write(number, ".out", "");
    Write(number, ".err", "");
  }
  void Write(uint32_t number, const char* extension, const std::string& text) {
    std::ofstream(Path(number, extension), std::ios::app) << text;
  }
  // All lines of the next poll, with "e:" before those of the error stream.
  std::vector<std::string> Lines() {
    std::vector<std::string> all;
    for (const LogBatch& batch : tailer->Poll()) {
      CHECK(batch.driver == kDriver);
      CHECK(batch.lines.os_pid() == 4711);
      for (const std::string& line : batch.lines.lines()) {
        all.push_back((batch.lines.error_stream() ? "e:" : "") + line);
      }
    }
    return all;
  }
  ScratchDirectory directory;
  LogFiles files{directory.path()};
  std::unique_ptr<LogTailer> tailer;
};

using Strings = std::vector<std::string>;

SCENARIO("lines come once, whole, in order, told apart by stream") {
  Fixture fixture;
  CHECK(fixture.Lines().empty());
  fixture.Write(2, ".out", "one\ntw");
  fixture.Write(2, ".err", "oh\xff\n");
  CHECK(fixture.Lines() == Strings{"one", "e:oh?"});
  CHECK(fixture.Lines().empty());
  fixture.Write(2, ".out", "o\n\nthree");
  CHECK(fixture.Lines() == Strings{"two", ""});
  WHEN("the worker ends") {
    fixture.tailer->End({1, 2});
    CHECK(fixture.Lines() == Strings{"three"});
    THEN("it is forgotten, and files that stayed empty are gone") {
      CHECK(fixture.tailer->empty());
      CHECK(fs::exists(fixture.Path(2, ".out")));
      fixture.Add(3);
      fixture.tailer->End({1, 3});
      CHECK(fixture.Lines().empty());
      CHECK_FALSE(fs::exists(fixture.Path(3, ".out")));
    }
  }
}

SCENARIO("who prints too fast is shown in part, with a note") {
  LogTailerOptions options;
  options.bytes_per_poll = 100;
  Fixture fixture(options);
  std::string text;
  for (int i = 0; i < 100; ++i) text += "line " + std::to_string(1000 + i) + "\n";
  fixture.Write(2, ".out", text);
  const Strings lines = fixture.Lines();
  REQUIRE(lines.size() == 10);
  CHECK(lines[0] == "... 910 bytes left out; they are in " + fixture.Path(2, ".out"));
  CHECK(lines[1] == "line 1091");
  CHECK(lines.back() == "line 1099");
  fixture.Write(2, ".out", "next\n");
  CHECK(fixture.Lines() == Strings{"next"});
}

SCENARIO("a line without end is handed on in pieces") {
  LogTailerOptions options;
  options.max_line_bytes = 8;
  Fixture fixture(options);
  fixture.Write(2, ".out", "0123456789");
  CHECK(fixture.Lines() == Strings{"01234567"});
  fixture.Write(2, ".out", "\n");
  CHECK(fixture.Lines() == Strings{"89"});
}

SCENARIO("a file over its cap moves to .1 and starts anew") {
  LogTailerOptions options;
  options.max_file_bytes = 10;
  Fixture fixture(options);
  fixture.Write(2, ".out", "0123456\n89\n");
  CHECK(fixture.Lines() == Strings{"0123456", "89"});
  CHECK(fs::file_size(fixture.Path(2, ".out")) == 0);
  CHECK(fs::file_size(fixture.Path(2, ".out.1")) == 11);
  fixture.Write(2, ".out", "more\n");
  CHECK(fixture.Lines() == Strings{"more"});
}

SCENARIO("a file that something has yet to read is moved later, but not put off for ever") {
  bool is_unread = true;
  LogTailerOptions options;
  options.max_file_bytes = 10;
  options.is_unread = [&](const std::string& name) {
    return name == "worker-1.2.out" && is_unread;
  };
  Fixture fixture(options);
  fixture.Write(2, ".out", "0123456\n89\n");
  CHECK(fixture.Lines() == Strings{"0123456", "89"});
  CHECK(fs::file_size(fixture.Path(2, ".out")) == 11);
  WHEN("it has been read") {
    is_unread = false;
    fixture.Lines();
    CHECK(fs::file_size(fixture.Path(2, ".out")) == 0);
  }
  WHEN("it grows beyond all patience") {
    fixture.Write(2, ".out", std::string(LogTailerOptions::kPatience * 10, 'x') + "\n");
    fixture.Lines();
    CHECK(fs::file_size(fixture.Path(2, ".out")) == 0);
  }
}

SCENARIO("what a rotation leaves out is not in a line with what was read before it") {
  LogTailerOptions options;
  options.max_file_bytes = 16;  // Less than a block: the file is copied and emptied whole.
  std::function<void()> before_rotation;
  options.is_unread = [&](const std::string&) {
    if (before_rotation) std::exchange(before_rotation, nullptr)();
    return false;
  };
  Fixture fixture(options);
  fixture.Write(2, ".out", "longer than a file may be\npart");
  before_rotation = [&] { fixture.Write(2, ".out", "ial\nunseen\n"); };
  CHECK(fixture.Lines() == Strings{"longer than a file may be"});
  CHECK(fs::file_size(fixture.Path(2, ".out")) == 0);
  fixture.Write(2, ".out", "end\nlater\n");
  const Strings lines = fixture.Lines();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].starts_with("... 15 bytes left out"));
  CHECK(lines[1] == "later");
}

SCENARIO("the output of a submitted command is kept small while it runs, in so many parts") {
  LogTailerOptions options;
  options.max_job_bytes = 10;
  options.job_backups = 2;
  Fixture fixture(options);
  const std::string name = "job-driver-a.log";
  const auto write = [&](const std::string& text) {
    std::ofstream(fixture.files.PathOf(name), std::ios::app) << text;
  };
  fixture.tailer->AddJob(name);
  CHECK(fixture.Lines().empty());  // It may not be there yet.
  for (const char* text : {"one 6789\n12", "two 6789\n12", "three 6789\n"}) {
    write(text);
    CHECK(fixture.Lines().empty());  // Those are for no driver.
    CHECK(fs::file_size(fixture.files.PathOf(name)) == 0);
  }
  CHECK(fs::exists(fixture.files.PathOf(name + ".2")));
  CHECK_FALSE(fs::exists(fixture.files.PathOf(name + ".3")));
  fixture.tailer->EndJob(name);
  write("it has ended\n");
  CHECK(fixture.Lines().empty());
  CHECK(fs::file_size(fixture.files.PathOf(name)) == 13);
}

SCENARIO("a worker's file that was rotated stays, though it is empty at its end") {
  LogTailerOptions options;
  options.max_file_bytes = 10;
  Fixture fixture(options);
  fixture.Write(2, ".out", "0123456789ab\n");
  CHECK(fixture.Lines() == Strings{"0123456789ab"});
  fixture.tailer->End({1, 2});
  CHECK(fixture.Lines().empty());
  CHECK(fs::exists(fixture.Path(2, ".out")));
  CHECK_FALSE(fs::exists(fixture.Path(2, ".err")));
}

SCENARIO("old files go, those of living workers stay") {
  LogTailerOptions options;
  options.max_total_bytes = 25;
  Fixture fixture(options);
  fixture.Write(2, ".out", "living");
  fixture.Write(8, ".out", "0123456789");
  fixture.Write(9, ".out", "0123456789");
  fs::last_write_time(fixture.Path(8, ".out"),
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  const int64_t now = time(nullptr);
  fixture.tailer->RemoveOld(now);
  CHECK_FALSE(fs::exists(fixture.Path(8, ".out")));  // Together they were too much.
  CHECK(fs::exists(fixture.Path(9, ".out")));
  fixture.tailer->RemoveOld(now + 25 * 3600);
  CHECK_FALSE(fs::exists(fixture.Path(9, ".out")));
  CHECK(fs::exists(fixture.Path(2, ".out")));
}

}  // namespace log_tailer_test
}  // namespace sheaf
