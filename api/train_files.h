// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A training run's folder: the history of its steps and its checkpoints, and what of them counts
// after a crash.
//
//   metrics.jsonl            a line per step, in order
//   checkpoint_NNNNNN/       complete: the folder was renamed when all in it was on disk
//   .incomplete-NNNNNN-E/    being written, or left by a crash
//
// Steps behind the newest checkpoint are made again when a run goes on, so they are cut off first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "sheaf/train.h"

namespace sheaf::inline v1::train::internal {

inline constexpr char kIncomplete[] = ".incomplete-";

// The folder that the checkpoint of report `number` (from 0) is written to before it is complete.
std::string IncompleteFolder(const std::string& run, uint64_t number, uint64_t epoch);
// Throws InvalidArgumentError: a name that JSON would have to escape.
void CheckNames(const Metrics& metrics);
void MakeFolder(const std::filesystem::path& folder);
// Everything in the folder, and the folder itself, is on disk on return.
void SyncFiles(const std::filesystem::path& folder);

// Not thread-safe. All throw SystemError, with the name of the file, when the disk fails.
class RunFiles {
 public:
  // `folder` empty: there are no files, and no checkpoints. `keep`: so many checkpoints stay, the
  // newest; 0: all.
  RunFiles(std::filesystem::path folder, int keep);

  // Makes the folder, or takes up what an earlier run has left there: complete checkpoints, and the
  // steps up to the newest.
  void Open();
  // One more step; with the folder that its checkpoint was written to, that is complete and on disk
  // on return.
  void Record(Row row, const std::string& incomplete);
  // Forgets the steps behind the newest checkpoint and what is incomplete. No worker writes now.
  void Rollback();

  const std::filesystem::path& folder() const { return folder_; }
  const std::vector<Row>& history() const { return history_; }
  std::optional<Checkpoint> newest() const;

 private:
  struct Kept {
    std::filesystem::path folder;
    uint64_t steps;
  };
  void RemoveIncomplete();
  void Remove(const std::filesystem::path& folder);
  void WriteHistory();

  const std::filesystem::path folder_;
  const int keep_;
  std::vector<Row> history_;
  std::vector<Kept> kept_;  // Oldest first.
  UniqueFd log_;            // metrics.jsonl, to append to.
};

// A line of metrics.jsonl, without its end: {"step":1,"seconds":0.5,"loss":0.25}.
std::string LineOf(const Row& row);
// nullopt: it is no such line, or only a part of one.
std::optional<Row> RowOf(const std::string& line);

}  // namespace sheaf::inline v1::train::internal
