// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What SqliteStorage does when processes, disks and bits fail: nothing acknowledged is lost,
// nothing wrong is read.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/testing/scratch_directory_for_test.h"
#include "gcs/storage/sqlite_storage.h"
#include "tests/conformance/faulty_vfs.h"

namespace sheaf {
namespace {

using Rows = std::map<std::pair<Table, std::string>, std::string>;

absl::StatusOr<Rows> LoadFrom(const std::string& path, const std::string& vfs = "") {
  InlineExecutor executor;
  auto storage = SqliteStorage::Open({.path = path, .ballast_bytes = 0, .vfs = vfs}, executor);
  if (!storage.ok()) return storage.status();
  Rows rows;
  const absl::Status status =
      (*storage)->LoadAll([&](Table table, std::string_view key, std::string_view value) {
        rows[{table, std::string(key)}] = std::string(value);
      });
  if (!status.ok()) return status;
  return rows;
}

absl::Status CommitAndWait(Storage& storage, WriteBatch batch) {
  auto result = std::make_shared<std::promise<absl::Status>>();
  storage.Commit(std::move(batch), [result](absl::Status status) { result->set_value(status); });
  return result->get_future().get();
}

// Commits pairs of rows without end, 32 batches in flight, and writes the number of each
// acknowledged one to `pipe`.
[[noreturn]] void RunWriter(const std::string& path, int pipe, uint64_t first) {
  ThreadExecutor executor("completions");
  auto storage = SqliteStorage::Open({.path = path}, executor);
  if (!storage.ok()) _exit(2);
  std::atomic<uint64_t> next = first;
  std::function<void()> submit = [&] {
    const uint64_t number = next++;
    const std::string value(1 + number % 3000, 'v');
    (*storage)->Commit({{Table::kJobs, absl::StrCat(number), value},
                        {Table::kActors, absl::StrCat(number), value}},
                       [&submit, pipe, number](absl::Status status) {
                         if (!status.ok()) _exit(3);
                         if (write(pipe, &number, sizeof number) != sizeof number) _exit(4);
                         submit();
                       });
  };
  for (int i = 0; i < 32; ++i) submit();
  for (;;) pause();
}

void FlipBit(const std::string& path, uint64_t bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(bit / 8));
  const char byte = static_cast<char>(file.get() ^ (1 << bit % 8));
  file.seekp(static_cast<std::streamoff>(bit / 8));
  file.put(byte);
}

// A database whose log still holds its `transactions` transactions, two rows each, as a killed
// process leaves it.
void MakeLog(const ScratchDirectory& directory, int transactions) {
  ThreadExecutor executor("completions");
  auto storage = SqliteStorage::Open({.path = directory / "live.db", .ballast_bytes = 0}, executor);
  REQUIRE(storage.status() == absl::OkStatus());
  for (int i = 0; i < transactions; ++i) {
    REQUIRE(
        CommitAndWait(**storage, {{Table::kJobs, absl::StrCat(1000 + i), std::string(100, 'j')},
                                  {Table::kActors, absl::StrCat(1000 + i), std::string(3000, 'a')}})
            .ok());
  }
  std::filesystem::copy(directory / "live.db", directory / "killed.db");
  std::filesystem::copy(directory / "live.db-wal", directory / "killed.db-wal");
}

}  // namespace

SCENARIO("a writer killed at any point has lost nothing that it was told is durable") {
  ScratchDirectory directory;
  const std::string path = directory / "gcs.db";
  SeededRandom random(4711);
  std::set<uint64_t> acknowledged;
  uint64_t first = 0;
  for (int round = 0; round < 15; ++round) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      close(ends[0]);
      RunWriter(path, ends[1], first);
    }
    close(ends[1]);
    uint64_t left = 1 + random.Below(400);
    uint64_t number;
    while (left-- > 0 && read(ends[0], &number, sizeof number) == sizeof number)
      acknowledged.insert(number);
    // Not a wait: the kill is to fall anywhere.
    usleep(static_cast<useconds_t>(random.Below(2000)));
    kill(child, SIGKILL);
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    while (read(ends[0], &number, sizeof number) == sizeof number) acknowledged.insert(number);
    close(ends[0]);

    const absl::StatusOr<Rows> rows = LoadFrom(path);
    REQUIRE(rows.status() == absl::OkStatus());
    size_t missing = 0;
    for (const uint64_t one : acknowledged)
      missing += !rows->contains({Table::kJobs, absl::StrCat(one)});
    CHECK(missing == 0);
    size_t torn = 0;
    for (const auto& [key, value] : *rows) {
      const Table other = key.first == Table::kJobs ? Table::kActors : Table::kJobs;
      const auto twin = rows->find({other, key.second});
      torn += twin == rows->end() || twin->second != value;
    }
    CHECK(torn == 0);
    first = *acknowledged.rbegin() + 1000;
  }
  CHECK(acknowledged.size() > 500);
}

SCENARIO("a power failure takes only what was not acknowledged") {
  FaultyVfs disk;
  ScratchDirectory directory;
  const std::string path = directory / "gcs.db";
  ThreadExecutor executor("completions");
  auto storage =
      SqliteStorage::Open({.path = path, .ballast_bytes = 0, .vfs = FaultyVfs::kName}, executor);
  REQUIRE(storage.status() == absl::OkStatus());
  // More than one checkpoint's worth, so that the database file is written and synced as well.
  for (int i = 0; i < 300; ++i) {
    REQUIRE(
        CommitAndWait(**storage, {{Table::kKeyValues, absl::StrCat(i), std::string(20'000, 'x')}})
            .ok());
    if (i % 60 == 59) {
      const std::string copy = directory / absl::StrCat("copy", i, ".db");
      // The power fails here: only what was synced is in the copy.
      ScratchDirectory aside;
      for (const char* suffix : {"", "-wal"}) {
        std::filesystem::copy(path + suffix, aside / (std::string("now") + suffix));
      }
      disk.LosePower();
      for (const char* suffix : {"", "-wal"}) std::filesystem::copy(path + suffix, copy + suffix);
      for (const char* suffix : {"", "-wal"}) {
        std::ifstream in(aside / (std::string("now") + suffix), std::ios::binary);
        std::ofstream(path + suffix, std::ios::binary | std::ios::trunc) << in.rdbuf();
      }
      const absl::StatusOr<Rows> rows = LoadFrom(copy);
      REQUIRE(rows.status() == absl::OkStatus());
      CHECK(rows->size() == static_cast<size_t>(i + 1));
    }
  }
}

SCENARIO("a failed fsync is fatal, is not repeated, and acknowledges nothing") {
  FaultyVfs disk;
  ScratchDirectory directory;
  const std::string path = directory / "gcs.db";
  std::promise<absl::Status> fatal;
  std::atomic<int> answered = 0;
  ThreadExecutor executor("completions");
  {
    auto storage =
        SqliteStorage::Open({.path = path,
                             .ballast_bytes = 0,
                             .on_fatal = [&](absl::Status status) { fatal.set_value(status); },
                             .vfs = FaultyVfs::kName},
                            executor);
    REQUIRE(storage.status() == absl::OkStatus());
    REQUIRE(CommitAndWait(**storage, {{Table::kMeta, "before", "1"}}).ok());
    disk.FailSync(1);
    const int syncs = disk.syncs();
    (*storage)->Commit({{Table::kMeta, "during", "1"}}, [&](absl::Status) { ++answered; });
    CHECK(fatal.get_future().get().code() == absl::StatusCode::kUnavailable);
    (*storage)->Commit({{Table::kMeta, "after", "1"}}, [&](absl::Status) { ++answered; });
    storage->reset();
    CHECK(disk.syncs() == syncs + 1);
  }
  executor.Stop();
  CHECK(answered == 0);
  disk.LosePower();
  // The storage above has left its file open and locked, as the process it stands for would have
  // ended.
  std::filesystem::copy(path, path + "2");
  std::filesystem::copy(path + "-wal", path + "2-wal");
  const absl::StatusOr<Rows> rows = LoadFrom(path + "2");
  REQUIRE(rows.status() == absl::OkStatus());
  CHECK(*rows == Rows{{{Table::kMeta, "before"}, "1"}});
}

SCENARIO("a failed fsync of a checkpoint is fatal as well") {
  FaultyVfs disk;
  ScratchDirectory directory;
  std::promise<absl::Status> fatal;
  ThreadExecutor executor("completions");
  auto storage =
      SqliteStorage::Open({.path = directory / "gcs.db",
                           .ballast_bytes = 0,
                           .on_fatal = [&](absl::Status status) { fatal.set_value(status); },
                           .vfs = FaultyVfs::kName},
                          executor);
  REQUIRE(storage.status() == absl::OkStatus());
  disk.FailSync(3);  // 1 is the header of a new log, 2 its commit, 3 begins the checkpoint.
  (*storage)->Commit({{Table::kKeyOwners, "more than a thousand pages", std::string(5 << 20, 'x')}},
                     [](absl::Status) {});
  CHECK(fatal.get_future().get().code() == absl::StatusCode::kUnavailable);
}

SCENARIO("on a full disk commits fail with a typed error, and go on when there is space") {
  FaultyVfs disk;
  ScratchDirectory directory;
  const std::string path = directory / "gcs.db";
  ThreadExecutor executor("completions");
  auto storage = SqliteStorage::Open({.path = path,
                                      .ballast_bytes = 1 << 20,
                                      .on_fatal = [](absl::Status) { FAIL(); },
                                      .vfs = FaultyVfs::kName},
                                     executor);
  REQUIRE(storage.status() == absl::OkStatus());
  CHECK(std::filesystem::file_size(path + "-ballast") == 1 << 20);
  REQUIRE(CommitAndWait(**storage, {{Table::kMeta, "before", "1"}}).ok());
  disk.FillDiskAfter(0);
  const absl::Status full =
      CommitAndWait(**storage, {{Table::kMeta, "big", std::string(100'000, 'x')}});
  CHECK(full.code() == absl::StatusCode::kResourceExhausted);
  CHECK((*storage)->read_only());
  CHECK(std::filesystem::file_size(path + "-ballast") == 0);
  disk.FillDiskAfter(-1);
  CHECK(CommitAndWait(**storage, {{Table::kMeta, "after", "1"}}).ok());
  CHECK_FALSE((*storage)->read_only());
  CHECK(std::filesystem::file_size(path + "-ballast") == 1 << 20);
  storage->reset();
  const absl::StatusOr<Rows> rows = LoadFrom(path);
  REQUIRE(rows.status() == absl::OkStatus());
  CHECK(*rows == Rows{{{Table::kMeta, "before"}, "1"}, {{Table::kMeta, "after"}, "1"}});
}

SCENARIO("a real file system is full, and who is dead still gets to it from the reserve") {
  ScratchDirectory directory;
  if (mount("tmpfs", directory.path().c_str(), "tmpfs", 0, "size=16m") != 0) {
    WARN("SKIPPED: cannot mount a small tmpfs: " << std::strerror(errno));
    return;
  }
  const std::string path = directory / "gcs.db";
  const std::string hog = directory / "hog";
  {
    ThreadExecutor executor("completions");
    auto storage = SqliteStorage::Open(
        {.path = path, .ballast_bytes = 1 << 20, .reserve_bytes = 2 << 20}, executor);
    REQUIRE(storage.status() == absl::OkStatus());
    CHECK(std::filesystem::file_size(path + "-reserve") == 2 << 20);
    // Others take every byte that comes free.
    const auto fill = [&] {
      std::ofstream file(hog, std::ios::app);
      while (file << std::string(4096, 'h') << std::flush) continue;
    };
    fill();
    while (CommitAndWait(**storage, {{Table::kKeyValues, "big", std::string(50'000, 'x')}}).ok())
      continue;
    fill();
    CHECK((*storage)->read_only());
    int kept = 0;
    for (int i = 0; i < 50; ++i) {
      std::promise<absl::Status> done;
      (*storage)->CommitVital({{Table::kNodes, absl::StrCat(i), "dead"}},
                              [&done](absl::Status status) { done.set_value(status); });
      kept += done.get_future().get().ok();
      CHECK_FALSE(CommitAndWait(**storage, {{Table::kMeta, "more", "x"}}).ok());
    }
    CHECK(kept == 50);
    std::filesystem::remove(hog);
    CHECK(CommitAndWait(**storage, {{Table::kMeta, "after", "x"}}).ok());
    CHECK(std::filesystem::file_size(path + "-reserve") == 2 << 20);
    storage->reset();
    const absl::StatusOr<Rows> rows = LoadFrom(path);
    REQUIRE(rows.status() == absl::OkStatus());
    for (int i = 0; i < 50; ++i) CHECK(rows->contains({Table::kNodes, absl::StrCat(i)}));
    CHECK_FALSE(rows->contains({Table::kMeta, "more"}));
  }
  umount2(directory.path().c_str(), MNT_DETACH);
}

SCENARIO("a real file system of 16 MiB fills up and is freed") {
  ScratchDirectory directory;
  if (mount("tmpfs", directory.path().c_str(), "tmpfs", 0, "size=16m") != 0) {
    WARN("SKIPPED: cannot mount a small tmpfs: " << std::strerror(errno));
    return;
  }
  const std::string path = directory / "gcs.db";
  const std::string hog = directory / "hog";
  {
    ThreadExecutor executor("completions");
    auto storage = SqliteStorage::Open({.path = path, .ballast_bytes = 1 << 20}, executor);
    REQUIRE(storage.status() == absl::OkStatus());
    std::ofstream(hog) << std::string(6 << 20, 'h');
    std::set<std::string> acknowledged;
    int refused = 0;
    for (int i = 0; refused < 10 && i < 1000; ++i) {
      const std::string key = absl::StrCat(i);
      const absl::Status status =
          CommitAndWait(**storage, {{Table::kKeyValues, key, std::string(50'000, 'x')}});
      if (status.ok()) {
        acknowledged.insert(key);
      } else {
        CHECK(status.code() == absl::StatusCode::kResourceExhausted);
        ++refused;
      }
    }
    CHECK(refused == 10);
    CHECK((*storage)->read_only());
    std::filesystem::remove(hog);
    CHECK(CommitAndWait(**storage, {{Table::kKeyValues, "after", "x"}}).ok());
    CHECK_FALSE((*storage)->read_only());
    storage->reset();
    const absl::StatusOr<Rows> rows = LoadFrom(path);
    REQUIRE(rows.status() == absl::OkStatus());
    CHECK(rows->size() == acknowledged.size() + 1);
    for (const std::string& key : acknowledged) CHECK(rows->contains({Table::kKeyValues, key}));
  }
  umount2(directory.path().c_str(), MNT_DETACH);
}

SCENARIO("a flipped bit in the database is detected or does not matter, and never changes a row") {
  ScratchDirectory directory;
  const std::string path = directory / "gcs.db";
  {
    ThreadExecutor executor("completions");
    auto storage = SqliteStorage::Open({.path = path, .ballast_bytes = 0}, executor);
    REQUIRE(storage.status() == absl::OkStatus());
    for (int i = 0; i < 200; ++i) {
      (*storage)->Commit({{Table::kKeyValues, absl::StrCat("key", i), std::string(i * 10, 'v')}},
                         [](absl::Status) {});
    }
  }
  const absl::StatusOr<Rows> expected = LoadFrom(path);
  REQUIRE(expected->size() == 200);
  SeededRandom random(13);
  const uint64_t bits = std::filesystem::file_size(path) * 8;
  int detected = 0;
  for (int i = 0; i < 300; ++i) {
    // Half of them in the two pages that matter most, the header and the root of the tree.
    const uint64_t bit = random.Below(i % 2 == 0 ? bits : 2 * 4096 * 8);
    FlipBit(path, bit);
    std::filesystem::copy(path, directory / "flipped.db",
                          std::filesystem::copy_options::overwrite_existing);
    FlipBit(path, bit);
    std::filesystem::remove(directory / "flipped.db-wal");
    const absl::StatusOr<Rows> rows = LoadFrom(directory / "flipped.db");
    INFO("bit " << bit);
    if (rows.ok()) {
      CHECK(*rows == *expected);
    } else {
      ++detected;
      CHECK(rows.status().message().find("flipped.db") != absl::string_view::npos);
    }
  }
  CHECK(detected > 60);
}

SCENARIO("a torn end of the log is dropped, and only the transaction that it belongs to") {
  ScratchDirectory directory;
  constexpr int kTransactions = 8;
  MakeLog(directory, kTransactions);
  const std::string path = directory / "killed.db";
  const std::string whole = directory / "whole-wal";
  std::filesystem::copy(path + "-wal", whole);
  const uint64_t size = std::filesystem::file_size(whole);
  REQUIRE(LoadFrom(path)->size() == 2 * kTransactions);
  SeededRandom random(7);
  for (int i = 0; i < 40; ++i) {
    std::filesystem::copy(directory / "live.db", path,
                          std::filesystem::copy_options::overwrite_existing);
    std::filesystem::copy(whole, path + "-wal", std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(path + "-wal", size - 1 - random.Below(size / 3));
    const absl::StatusOr<Rows> rows = LoadFrom(path);
    REQUIRE(rows.status() == absl::OkStatus());
    CHECK(rows->size() % 2 == 0);
    CHECK(rows->size() < 2 * kTransactions);
  }
}

SCENARIO("a flipped bit in the middle of the log is refused with file and offset") {
  ScratchDirectory directory;
  constexpr size_t kTransactions = 8;
  MakeLog(directory, kTransactions);
  const std::string path = directory / "killed.db";
  const std::string whole = directory / "whole-wal";
  std::filesystem::copy(path + "-wal", whole);
  const absl::StatusOr<Rows> expected = LoadFrom(path);
  REQUIRE(expected->size() == 2 * kTransactions);
  SeededRandom random(17);
  const uint64_t bits = std::filesystem::file_size(whole) * 8;
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    const uint64_t bit = random.Below(bits);
    std::filesystem::copy(directory / "live.db", path,
                          std::filesystem::copy_options::overwrite_existing);
    std::filesystem::copy(whole, path + "-wal", std::filesystem::copy_options::overwrite_existing);
    FlipBit(path + "-wal", bit);
    const absl::StatusOr<Rows> rows = LoadFrom(path);
    INFO("bit " << bit << " of " << bits);
    if (!rows.ok()) {
      ++refused;
      CHECK(rows.status().code() == absl::StatusCode::kDataLoss);
      CHECK(rows.status().message().find("-wal: damaged") != absl::string_view::npos);
      CHECK(rows.status().message().find("offset") != absl::string_view::npos);
    } else {
      // Damage in the last transactions cannot be told from a torn end.
      CHECK(rows->size() >= 2 * (kTransactions - 2));
    }
  }
  CHECK(refused > 100);
}

SCENARIO("batches that wait while another is written share one transaction") {
  ScratchDirectory directory;
  ThreadExecutor executor("completions");
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  auto storage = SqliteStorage::Open({.path = directory / "gcs.db",
                                      .ballast_bytes = 0,
                                      .on_commit = [gone](Nanos) { gone.wait(); }},
                                     executor);
  REQUIRE(storage.status() == absl::OkStatus());
  for (int i = 0; i < 100; ++i) {
    (*storage)->Commit({{Table::kMeta, absl::StrCat(i), "x"}}, [](absl::Status) {});
  }
  go.set_value();
  REQUIRE(CommitAndWait(**storage, {{Table::kMeta, "last", "x"}}).ok());
  CHECK((*storage)->transactions() <= 4);
}

SCENARIO("what is not this program's database is refused with the reason") {
  ScratchDirectory directory;
  const std::string path = directory / "gcs.db";
  InlineExecutor executor;
  WHEN("it is no database at all") {
    std::ofstream(path) << std::string(10'000, 'z');
    const absl::Status status = LoadFrom(path).status();
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    CHECK(status.message().find(path) != absl::string_view::npos);
  }
  WHEN("another process uses it") {
    auto first = SqliteStorage::Open({.path = path, .ballast_bytes = 0}, executor);
    REQUIRE(first.status() == absl::OkStatus());
    CHECK(LoadFrom(path).status().code() == absl::StatusCode::kFailedPrecondition);
  }
  WHEN("the directory does not exist") {
    CHECK(LoadFrom(directory / "missing/gcs.db").status().code() == absl::StatusCode::kUnavailable);
  }
}

SCENARIO("only the owner can read the files") {
  ScratchDirectory directory;
  const std::string path = directory / "gcs.db";
  ThreadExecutor executor("completions");
  auto storage = SqliteStorage::Open({.path = path}, executor);
  REQUIRE(storage.status() == absl::OkStatus());
  REQUIRE(CommitAndWait(**storage, {{Table::kMeta, "a", "1"}}).ok());
  for (const char* suffix : {"", "-wal", "-ballast", "-reserve"}) {
    struct stat file;
    INFO(suffix);
    REQUIRE(stat((path + suffix).c_str(), &file) == 0);
    CHECK((file.st_mode & 0777) == 0600);
  }
}

}  // namespace sheaf
