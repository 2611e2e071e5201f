// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What gcs/storage/storage.h promises, held against every implementation.
#include "gcs/storage/storage.h"
#include "base/testing/scratch_directory_for_test.h"

#include <sys/stat.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gcs/storage/memory_storage.h"
#include "gcs/storage/sqlite_storage.h"

namespace sheaf {
namespace {

using Rows = std::map<std::pair<Table, std::string>, std::string>;

Rows Load(Storage& storage) {
  Rows rows;
  std::vector<std::pair<Table, std::string>> order;
  REQUIRE(storage.LoadAll([&](Table table, std::string_view key, std::string_view value) {
    order.emplace_back(table, key);
    rows[order.back()] = std::string(value);
  }) == absl::OkStatus());
  CHECK(std::is_sorted(order.begin(), order.end()));
  CHECK(order.size() == rows.size());
  return rows;
}

// Each world has one disk that outlives the storages opened on it.
class MemoryWorld {
 public:
  void Open() { storage_ = std::make_unique<MemoryStorage>(disk_, executor_); }
  void Close() { storage_.reset(); }
  Storage& storage() { return *storage_; }

 private:
  InlineExecutor executor_;
  MemoryStorage::Disk disk_;
  std::unique_ptr<MemoryStorage> storage_;
};

class SqliteWorld {
 public:
  void Open() {
    auto opened =
        SqliteStorage::Open({.path = directory_ / "gcs.db", .ballast_bytes = 0}, executor_);
    REQUIRE(opened.status() == absl::OkStatus());
    storage_ = *std::move(opened);
  }
  void Close() { storage_.reset(); }
  Storage& storage() { return *storage_; }

 private:
  ScratchDirectory directory_;
  ThreadExecutor executor_{"completions"};
  std::unique_ptr<SqliteStorage> storage_;
};

absl::Status CommitAndWait(Storage& storage, WriteBatch batch) {
  auto result = std::make_shared<std::promise<absl::Status>>();
  storage.Commit(std::move(batch), [result](absl::Status status) { result->set_value(status); });
  return result->get_future().get();
}

}  // namespace

TEMPLATE_TEST_CASE("a committed batch is there after the storage is opened again", "", MemoryWorld,
                   SqliteWorld) {
  TestType world;
  world.Open();
  CHECK(Load(world.storage()).empty());
  const std::string binary("\0\xff key\0", 7);
  const std::string large(1 << 20, 'x');
  REQUIRE(CommitAndWait(world.storage(), {{Table::kKeyValues, binary, "value"},
                                          {Table::kKeyValues, "empty", ""},
                                          {Table::kKeyOwners, "large", large},
                                          {Table::kJobs, binary, "another table"}}) ==
          absl::OkStatus());
  const Rows expected = {{{Table::kKeyValues, binary}, "value"},
                         {{Table::kKeyValues, "empty"}, ""},
                         {{Table::kKeyOwners, "large"}, large},
                         {{Table::kJobs, binary}, "another table"}};
  world.Close();
  world.Open();
  CHECK(Load(world.storage()) == expected);
}

TEMPLATE_TEST_CASE("puts overwrite, deletes delete, the last write of a batch counts", "",
                   MemoryWorld, SqliteWorld) {
  TestType world;
  world.Open();
  Storage& storage = world.storage();
  REQUIRE(CommitAndWait(storage, {{Table::kMeta, "a", "1"}, {Table::kMeta, "b", "1"}}) ==
          absl::OkStatus());
  REQUIRE(CommitAndWait(storage, {{Table::kMeta, "a", "2"},
                                  {Table::kMeta, "b", std::nullopt},
                                  {Table::kMeta, "never there", std::nullopt},
                                  {Table::kMeta, "c", "1"},
                                  {Table::kMeta, "c", "2"},
                                  {Table::kMeta, "d", "1"},
                                  {Table::kMeta, "d", std::nullopt}}) == absl::OkStatus());
  REQUIRE(CommitAndWait(storage, {}) == absl::OkStatus());
  world.Close();
  world.Open();
  CHECK(Load(world.storage()) == Rows{{{Table::kMeta, "a"}, "2"}, {{Table::kMeta, "c"}, "2"}});
}

TEMPLATE_TEST_CASE("completions come once each, in the order of the commits", "", MemoryWorld,
                   SqliteWorld) {
  TestType world;
  world.Open();
  constexpr int kBatches = 2000;
  std::vector<int> completed;  // Only touched by the executor until `all` is set.
  std::promise<void> all;
  for (int i = 0; i < kBatches; ++i) {
    world.storage().Commit({{Table::kKeyValues, std::to_string(i % 7), std::to_string(i)}},
                           [&, i](absl::Status status) {
                             if (status.ok()) completed.push_back(i);
                             if (i == kBatches - 1) all.set_value();
                           });
  }
  all.get_future().get();
  CHECK(completed.size() == kBatches);
  CHECK(std::is_sorted(completed.begin(), completed.end()));
  world.Close();
  world.Open();
  const Rows rows = Load(world.storage());
  CHECK(rows.size() == 7);
  CHECK(rows.at({Table::kKeyValues, std::to_string((kBatches - 1) % 7)}) ==
        std::to_string(kBatches - 1));
}

TEMPLATE_TEST_CASE("closing at once loses nothing that was committed before", "", MemoryWorld,
                   SqliteWorld) {
  TestType world;
  world.Open();
  for (int i = 0; i < 100; ++i) {
    world.storage().Commit({{Table::kMeta, std::to_string(i), "x"}}, [](absl::Status) {});
  }
  world.Close();
  world.Open();
  CHECK(Load(world.storage()).size() == 100);
}

TEST_CASE(
    "a copy that is made during commits is that of one moment, and opens in place of the first") {
  const ScratchDirectory directory;
  ThreadExecutor executor("completions");
  auto storage = *SqliteStorage::Open({.path = directory / "gcs.db", .ballast_bytes = 0}, executor);
  const std::string large(1 << 20, 'x');
  for (int i = 0; i < 20; ++i) {  // Several turns of the copy.
    REQUIRE(CommitAndWait(*storage, {{Table::kKeyOwners, std::to_string(i), large}}) ==
            absl::OkStatus());
  }
  auto copied = std::make_shared<std::promise<absl::Status>>();
  storage->Backup(directory / "copy.db",
                  [copied](absl::Status status) { copied->set_value(std::move(status)); });
  auto done = copied->get_future();
  // Each pair is one batch: in the copy there are both or none.
  int pairs = 0;
  while (done.wait_for(std::chrono::seconds(0)) != std::future_status::ready || pairs < 3) {
    const std::string number = std::to_string(pairs++);
    REQUIRE(CommitAndWait(*storage, {{Table::kMeta, "a" + number, "1"},
                                     {Table::kKeyValues, "b" + number, "1"}}) == absl::OkStatus());
  }
  REQUIRE(done.get() == absl::OkStatus());
  auto copy = *SqliteStorage::Open({.path = directory / "copy.db", .ballast_bytes = 0}, executor);
  const Rows rows = Load(*copy);
  for (int i = 0; i < 20; ++i) CHECK(rows.at({Table::kKeyOwners, std::to_string(i)}) == large);
  for (int i = 0; i < pairs; ++i) {
    const std::string number = std::to_string(i);
    CHECK(rows.count({Table::kMeta, "a" + number}) ==
          rows.count({Table::kKeyValues, "b" + number}));
  }
  // A file that is there is left alone.
  auto again = std::make_shared<std::promise<absl::Status>>();
  storage->Backup(directory / "copy.db",
                  [again](absl::Status status) { again->set_value(std::move(status)); });
  CHECK(again->get_future().get().code() == absl::StatusCode::kAlreadyExists);
  CHECK_FALSE(std::filesystem::exists(directory / "copy.db.part"));
}

TEST_CASE("nothing is acknowledged that goes to a file without a name") {
  const ScratchDirectory directory;
  ThreadExecutor executor("completions");
  auto fatal = std::make_shared<std::promise<absl::Status>>();
  SqliteStorageOptions options{.path = directory / "gcs.db", .ballast_bytes = 0};
  options.on_fatal = [fatal](absl::Status why) { fatal->set_value(std::move(why)); };
  auto storage = *SqliteStorage::Open(std::move(options), executor);
  REQUIRE(CommitAndWait(*storage, {{Table::kMeta, "a", "1"}}) == absl::OkStatus());
  const char* const file = GENERATE("gcs.db", "gcs.db-wal");
  SECTION("removed") { std::filesystem::remove(directory / file); }
  SECTION("replaced") {
    std::filesystem::rename(directory / file, directory / "elsewhere");
    std::filesystem::copy_file(directory / "elsewhere", directory / file);
  }
  auto acknowledged = std::make_shared<std::atomic<bool>>(false);
  storage->Commit({{Table::kMeta, "b", "1"}},
                  [acknowledged](const absl::Status&) { *acknowledged = true; });
  CHECK(fatal->get_future().get().code() == absl::StatusCode::kDataLoss);
  storage->Flush();
  CHECK_FALSE(*acknowledged);
}

}  // namespace sheaf
