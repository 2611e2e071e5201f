// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/logs/log_files.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/error_kind.h"
#include "base/testing/scratch_directory_for_test.h"
#include "raylet/logs/log_names.h"
#include "raylet/logs/log_reader.h"

namespace sheaf {
namespace log_files_test {

namespace fs = std::filesystem;

constexpr char kName[] = "worker-1.7.out";

struct Fixture {
  ScratchDirectory directory;
  LogFiles files{directory.path()};

  std::string Path(const std::string& name = kName) const { return files.PathOf(name); }
  void Write(const std::string& text, const std::string& name = kName) const {
    std::ofstream(Path(name), std::ios::app | std::ios::binary) << text;
  }
  void Empty() const { fs::resize_file(Path(), 0); }
  proto::LogPiece Read(const proto::LogQuestion& question) const {
    const auto piece = files.Read(question);
    INFO(piece.status().ToString());
    REQUIRE(piece.ok());
    return *piece;
  }
  proto::LogPiece Next(const proto::LogPiece& before, uint32_t most = 0) const {
    proto::LogQuestion question;
    question.set_name(kName);
    question.set_offset(before.next());
    question.set_mark(before.mark());
    question.set_most_bytes(most);
    return Read(question);
  }
  proto::LogPiece Last(uint64_t lines, bool only_file = false) const {
    proto::LogQuestion question;
    question.set_name(kName);
    question.set_from_end(true);
    question.set_lines(lines);
    question.set_only_file(only_file);
    return Read(question);
  }
};

SCENARIO("a log is read on from where the piece before ended, as it grows") {
  const Fixture fixture;
  fixture.Write("one\n");
  proto::LogPiece piece = fixture.Next({});
  CHECK(piece.bytes() == "one\n");
  CHECK(piece.left() == 0);
  CHECK(fixture.Next(piece).bytes().empty());
  const std::string binary("\0\xff\x1b two\r\n", 9);
  fixture.Write(binary);
  piece = fixture.Next(piece);
  CHECK(piece.bytes() == binary);
  CHECK(piece.offset() == 4);
  CHECK_FALSE(piece.anew());
}

SCENARIO("no piece is larger than a MiB, whatever is wanted") {
  const Fixture fixture;
  fixture.Write(std::string(3 * kMaxLogPiece, 'x'));
  const proto::LogPiece first = fixture.Next({}, UINT32_MAX);
  CHECK(first.bytes().size() == kMaxLogPiece);
  CHECK(first.left() == 2 * kMaxLogPiece);
  CHECK(fixture.Last(1).bytes().size() == kMaxLogPiece);
  CHECK(fixture.Next(first, 10).bytes().size() == 10);
}

SCENARIO("the last lines are found, also where they are long, or the last has no end") {
  const Fixture fixture;
  fixture.Write("");
  CHECK(fixture.Last(5).bytes().empty());
  fixture.Write("one\ntwo\nthree");
  CHECK(fixture.Last(0).bytes().empty());
  CHECK(fixture.Last(0).next() == 13);
  CHECK(fixture.Last(1).bytes() == "three");
  CHECK(fixture.Last(2).bytes() == "two\nthree");
  fixture.Write("\n");
  CHECK(fixture.Last(2).bytes() == "two\nthree\n");
  CHECK(fixture.Last(UINT64_MAX).bytes() == "one\ntwo\nthree\n");
  const std::string line(300'000, 'x');
  fixture.Write(line + "\n" + line + "\n");
  CHECK(fixture.Last(2).bytes() == line + "\n" + line + "\n");
  CHECK(fixture.Last(3).bytes().starts_with("three\nxxx"));
}

SCENARIO("of a log beyond 64 MiB the last lines are looked for in the last 64 MiB") {
  const Fixture fixture;
  fixture.Write("first\n");
  fs::resize_file(fixture.Path(), kMaxLogLookBack + 1'000'000);
  CHECK(fixture.Last(1).offset() == 1'000'000);
}

SCENARIO("a log that was emptied, or became another one, is read from its beginning") {
  const Fixture fixture;
  fixture.Write("one\ntwo\n");
  const proto::LogPiece old = fixture.Next({});
  fixture.Empty();
  proto::LogPiece piece = fixture.Next(old);
  CHECK(piece.anew());
  CHECK(piece.bytes().empty());
  fixture.Write("new\n");
  CHECK(fixture.Next(piece).bytes() == "new\n");
  CHECK_FALSE(fixture.Next(piece).anew());
  // It may have grown beyond where it was, meanwhile.
  fixture.Write("and much longer than it was before\n");
  piece = fixture.Next(old);
  CHECK(piece.anew());
  CHECK(piece.bytes() == "new\nand much longer than it was before\n");
}

SCENARIO("who follows a log that is rotated misses nothing and gets nothing twice") {
  Fixture fixture;
  fixture.Write("0123456789\n");
  proto::LogPiece piece = fixture.Next({}, 4);
  std::string all = piece.bytes();
  REQUIRE(fixture.files.Rotate(kName, 2).ok());
  fixture.Write("abc\n");
  REQUIRE(fixture.files.Rotate(kName, 2).ok());
  fixture.Write("def\n");
  CHECK(fs::file_size(fixture.Path()) == 4);
  while (piece.left() > 0) {
    piece = fixture.Next(piece, 6);
    CHECK_FALSE(piece.anew());
    all += piece.bytes();
  }
  CHECK(all == "0123456789\nabc\ndef\n");
  CHECK(piece.next() == 19);
  CHECK(fixture.Last(2).bytes() == "abc\ndef\n");
  CHECK(fixture.Last(2, /*only_file=*/true).bytes() == "def\n");
  // One that is too late goes on with what is left, and hears where that is.
  REQUIRE(fixture.files.Rotate(kName, 2).ok());
  const proto::LogPiece late = fixture.Next({}, 4);
  CHECK(late.offset() == 11);
  CHECK(late.bytes() == "abc\n");
  CHECK_FALSE(fs::exists(fixture.Path() + ".3"));
  fixture.files.Remove(kName);
  CHECK(fs::is_empty(fixture.directory.path()));
}

// Whether the file system can cut off the front of a file, so that nothing is lost.
bool CutsFronts(const Fixture& fixture) {
  const std::string path = fixture.Path("front");
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT, 0600));
  struct stat info;
  const std::string bytes(1 << 20, 'x');
  const bool cuts = write(fd.get(), bytes.data(), bytes.size()) > 0 &&
                    fstat(fd.get(), &info) == 0 &&
                    fallocate(fd.get(), FALLOC_FL_COLLAPSE_RANGE, 0, info.st_blksize) == 0;
  unlink(path.c_str());
  return cuts;
}

SCENARIO("lines that are written while the file is rotated all the time come once, in order") {
  Fixture fixture;
  fixture.Write("");
  const bool cuts = CutsFronts(fixture);
  std::atomic<bool> enough = false;
  int lines = 0;
  std::thread writer([&] {  // As fast as it can.
    const UniqueFd fd(open(fixture.Path().c_str(), O_WRONLY | O_APPEND));
    while (!enough.load()) {
      const std::string line = absl::StrFormat("%07d\n", lines++);
      if (write(fd.get(), line.data(), line.size()) < 0) return;
    }
  });
  std::string all;
  proto::LogPiece piece;
  const auto read = [&] {
    do {
      piece = fixture.Next(piece);
      CHECK_FALSE(piece.anew());
      all += piece.bytes();
    } while (piece.left() > 0);
  };
  for (int rotations = 0; rotations < 200;) {
    if (fs::file_size(fixture.Path()) < 20'000) continue;
    CHECK(fixture.files.Rotate(kName, 9).ok());
    if (++rotations % 4 == 0) read();
  }
  enough.store(true);
  writer.join();
  read();
  // Where a file is copied and emptied, what fell between the two lacks, nothing else, and nothing
  // comes twice. Where that began in the middle of a line, two are one.
  int last = -1, lost = 0, wrong = 0;
  for (const absl::string_view line : absl::StrSplit(all, '\n', absl::SkipEmpty())) {
    int number = 0;
    const absl::string_view digits = line.substr(line.size() - std::min<size_t>(line.size(), 7));
    wrong += !absl::SimpleAtoi(digits, &number) || number <= last ? 1 : 0;
    lost += number - last - 1;
    last = number;
  }
  CHECK(wrong == 0);
  if (cuts) {
    CHECK(lost == 0);
    CHECK(all.size() == static_cast<size_t>(lines) * 8);
  }
  CHECK(last > lines / 2);
}

SCENARIO("names that lead elsewhere, links and what is no plain file are refused") {
  const Fixture fixture;
  fixture.Write("secret", "outside");
  fs::create_directory(fixture.Path("logs"));
  LogFiles inside(fixture.Path("logs"));
  const auto refused = [&](const std::string& name) {
    proto::LogQuestion question;
    question.set_name(name);
    return inside.Read(question).status().code();
  };
  for (const char* name : {"", ".", "..", "../outside", "/etc/passwd", "logs/../x", ".hidden"}) {
    INFO(name);
    CHECK(refused(name) == absl::StatusCode::kInvalidArgument);
  }
  CHECK(refused(std::string("x\0y", 3)) == absl::StatusCode::kInvalidArgument);
  CHECK(refused(std::string(5'000, 'x')) == absl::StatusCode::kNotFound);
  fs::create_symlink("../outside", fixture.Path("logs/link"));
  fs::create_directory(fixture.Path("logs/directory"));
  REQUIRE(mkfifo(fixture.Path("logs/pipe").c_str(), 0600) == 0);
  for (const char* name : {"link", "directory", "pipe"}) {
    CHECK(refused(name) == absl::StatusCode::kNotFound);
  }
  // Of an older part, too.
  std::ofstream(fixture.Path("logs/x")) << "x\n";
  fs::create_symlink("../outside", fixture.Path("logs/x.1"));
  proto::LogQuestion question;
  question.set_name("x");
  question.set_from_end(true);
  question.set_lines(9);
  CHECK(inside.Read(question)->bytes() == "x\n");
  proto::StateAnswer answer;
  REQUIRE(inside.List("", &answer).ok());
  REQUIRE(answer.log_files_size() == 1);
  CHECK(answer.log_files(0).name() == "x");
}

SCENARIO("files are listed by name, with Ray's groups") {
  const Fixture fixture;
  for (const char* name : {"worker-1.7.out", "worker-1.7.err", "worker-1.7.err.1", "node.log",
                           "gcs.log", "job-driver-a.log", "dashboard.log", "x", ".hidden"})
    fixture.Write("12", name);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::LOG_LIST);
  const auto groups = [&](const std::string& glob) {
    query.mutable_log()->set_name(glob);
    const proto::StateAnswer answer = AnswerAboutLogs(fixture.files, query);
    CHECK(answer.error().empty());
    std::string all;
    for (const proto::LogFile& file : answer.log_files()) {
      CHECK(file.size_bytes() == 2);
      CHECK(file.modified_unix_s() > 0);
      all += file.name() + "=" + file.group() + " ";
    }
    return all;
  };
  CHECK(groups("") ==
        "dashboard.log=dashboard gcs.log=gcs_server job-driver-a.log=driver node.log=raylet "
        "worker-1.7.err=worker_err worker-1.7.err.1=worker_err worker-1.7.out=worker_out "
        "x=internal ");
  CHECK(groups("worker-*.out") == "worker-1.7.out=worker_out ");
  CHECK(groups("nothing*").empty());
  query.mutable_log()->set_name(std::string(256, '*'));
  CHECK(AnswerAboutLogs(fixture.files, query).error_kind() ==
        static_cast<uint32_t>(ErrorKind::kInvalidArgument));
  query.set_what(proto::StateQuery::LOG_READ);
  query.mutable_log()->set_name("none");
  CHECK(AnswerAboutLogs(fixture.files, query).error_kind() ==
        static_cast<uint32_t>(ErrorKind::kNotFound));
}

SCENARIO("whose a file is stands in its name") {
  CHECK(WorkerOfLog("worker-1.7.out") == ProcessId{1, 7});
  CHECK(WorkerOfLog("worker-12.345.err.1") == ProcessId{12, 345});
  for (const char* name : {"worker-", "worker-1", "worker-1.7", "worker-x.7.out", "worker-1..out",
                           "worker-99999999999.1.out", "node.log"}) {
    INFO(name);
    CHECK_FALSE(WorkerOfLog(name).has_value());
  }
  CHECK(SubmissionOfLog(JobLogName("a.b")) == "a.b");
  CHECK_FALSE(SubmissionOfLog("job-driver-a.log.1").has_value());
}

}  // namespace log_files_test
}  // namespace sheaf
