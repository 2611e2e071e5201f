// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/train_files.h"

#include <stdlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <limits>

#include "base/testing/scratch_directory_for_test.h"

namespace sheaf::inline v1::train::internal {
namespace {

namespace fs = std::filesystem;

std::string Incomplete(const fs::path& run, uint64_t step) {
  const std::string folder = IncompleteFolder(run.string(), step - 1, 0);
  MakeFolder(folder);
  Checkpoint(folder).Write("state", step);
  return folder;
}
// Steps [first, last]; those that `each` divides have a checkpoint.
void RecordSteps(RunFiles& files, uint64_t first, uint64_t last, uint64_t each) {
  for (uint64_t step = first; step <= last; ++step) {
    files.Record({step, 0.5, {{"loss", 1.0 / static_cast<double>(step)}}},
                 step % each == 0 ? Incomplete(files.folder(), step) : "");
  }
}
std::vector<std::string> Names(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST_CASE("a row survives as a line, to the last bit") {
  const Row row{7, 0.1, {{"loss", 1.0 / 3}, {"a b,c:", -0.0}, {"big", 1e300}}};
  const std::optional<Row> read = RowOf(LineOf(row));
  REQUIRE(read.has_value());
  CHECK(read->step == 7);
  CHECK(read->seconds == 0.1);
  CHECK(read->metrics == row.metrics);
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(std::isnan(RowOf(LineOf({1, 0, {{"loss", infinity}}}))->metrics.at("loss")));
  const std::string line = LineOf(row);
  for (size_t size = 0; size < line.size(); ++size) CHECK(!RowOf(line.substr(0, size)).has_value());
}

TEST_CASE("names that a line cannot hold are refused") {
  for (const char* name : {"", "a\"b", "a\\b", "a\nb", "step", "seconds"})
    CHECK_THROWS_AS(CheckNames({{name, 1}}), InvalidArgumentError);
  CHECK_NOTHROW(CheckNames({{"loss/train: 1,2", 1}}));
}

TEST_CASE("what is behind the newest checkpoint is forgotten, once") {
  ScratchDirectory scratch;
  RunFiles files(scratch.path(), 0);
  files.Open();
  CHECK(!files.newest().has_value());
  RecordSteps(files, 1, 8, 3);
  Incomplete(scratch.path(), 9);  // Its worker died.
  CHECK(files.history().size() == 8);
  files.Rollback();
  CHECK(files.history().size() == 6);
  CHECK(files.newest()->Read<uint64_t>("state") == 6);
  RecordSteps(files, 7, 9, 3);
  CHECK(files.history().size() == 9);
  CHECK(Names(scratch.path()) == std::vector<std::string>{"checkpoint_000003", "checkpoint_000006",
                                                          "checkpoint_000009", "metrics.jsonl"});
}

TEST_CASE("a later run goes on from what an earlier one has left") {
  ScratchDirectory scratch;
  {
    RunFiles files(scratch.path(), 2);
    files.Open();
    RecordSteps(files, 1, 10, 3);
    Incomplete(scratch.path(), 12);
  }
  std::ofstream(scratch / "metrics.jsonl", std::ios::app) << "{\"step\":11,\"sec";  // Torn.
  fs::create_directory(scratch / "checkpoint_000012");  // Not ours: it has no marker.
  RunFiles files(scratch.path(), 2);
  files.Open();
  REQUIRE(files.history().size() == 9);
  for (uint64_t step = 1; step <= 9; ++step) CHECK(files.history()[step - 1].step == step);
  CHECK(files.newest()->Read<uint64_t>("state") == 9);
  CHECK(!fs::exists(scratch / "checkpoint_000003"));
  CHECK(fs::exists(scratch / "checkpoint_000006"));
}

TEST_CASE("a history that lost its steps is an error in words") {
  ScratchDirectory scratch;
  {
    RunFiles files(scratch.path(), 0);
    files.Open();
    RecordSteps(files, 1, 4, 4);
  }
  fs::remove(scratch / "metrics.jsonl");
  RunFiles files(scratch.path(), 0);
  CHECK_THROWS_AS(files.Open(), SystemError);
}

TEST_CASE("without a folder there is a history, and nothing on disk") {
  RunFiles files("", 0);
  files.Open();
  files.Record({1, 0, {}}, "");
  CHECK(files.history().size() == 1);
  files.Rollback();
  CHECK(files.history().empty());
}

TEST_CASE("a checkpoint says which file it cannot read") {
  ScratchDirectory scratch;
  Checkpoint checkpoint(scratch.path());
  CHECK_THROWS_WITH(checkpoint.Read<int>("state"), Catch::Contains("state: No such file"));
  CHECK_THROWS_AS(Checkpoint("/nonexistent").Write("state", 1), SystemError);
  checkpoint.Write("state", std::vector<float>{1, 2});
  CHECK(checkpoint.Read<std::vector<float>>("state") == std::vector<float>{1, 2});
  CHECK_THROWS_AS(checkpoint.Read<std::string>("state"), SerializationError);
}

}  // namespace
}  // namespace sheaf::inline v1::train::internal
