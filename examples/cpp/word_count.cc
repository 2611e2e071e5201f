// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "word_count.h"

#include <sheaf/sheaf.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "console.h"

namespace examples {
namespace fs = std::filesystem;

using Counts = std::unordered_map<std::string, int64_t>;
constexpr size_t kBuckets = 4;  // Each word belongs to one; each reducer sums up one.
using BucketRefs = std::array<std::vector<sheaf::ObjectRef<Counts>>, kBuckets>;

// What a task tells beside its result.
struct Reduced {
  Counts counts;
  uint32_t process = 0;
};

namespace {

size_t BucketOf(const std::string& word) { return std::hash<std::string>()(word) % kBuckets; }

template <class Visit>
void ForEachWord(const std::string& path, Visit visit) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::string word;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word.push_back(c);
    } else if (!word.empty()) {
      if (std::isdigit(static_cast<unsigned char>(word[0])) == 0) visit(word);
      word.clear();
    }
  }
}

std::vector<std::pair<std::string, uint64_t>> SourceFiles(const std::string& folder) {
  static const std::set<std::string> kExtensions = {".cc",    ".cpp", ".h",   ".hpp", ".py",
                                                    ".proto", ".md",  ".txt", ".sh"};
  std::vector<std::pair<std::string, uint64_t>> files;
  for (auto it =
           fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied);
       it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename();
    if (it->is_directory() && (name.starts_with(".") || name.starts_with("build"))) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file() && kExtensions.contains(it->path().extension())) {
      files.emplace_back(fs::absolute(it->path()), it->file_size());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

// One file group: its words, in buckets.
std::tuple<Counts, Counts, Counts, Counts> Map(const std::vector<std::string>& paths) {
  std::array<Counts, kBuckets> buckets;
  for (const std::string& path : paths) {
    ForEachWord(path, [&](const std::string& word) { ++buckets[BucketOf(word)][word]; });
  }
  return {std::move(buckets[0]), std::move(buckets[1]), std::move(buckets[2]),
          std::move(buckets[3])};
}

// One bucket: the sum over all groups. The references arrive as they are; Get waits for those that
// are not there yet.
Reduced Reduce(const std::vector<sheaf::ObjectRef<Counts>>& parts) {
  Reduced sum;
  for (const sheaf::ObjectRef<Counts>& part : parts) {
    for (const auto& [word, count] : sheaf::Get(part)) sum.counts[word] += count;
  }
  sum.process = sheaf::Context().process;
  return sum;
}

SHEAF_REMOTE(Map, Reduce);

bool RunWordCount(const std::string& folder) {
  Title("Word count", "map and reduce over the source files of " +
                          fs::absolute(folder).lexically_normal().string());
  const auto files = SourceFiles(folder);
  uint64_t bytes = 0;
  for (const auto& [path, size] : files) bytes += size;
  Row("input", WithCommas(files.size()) + " files, " + Bytes(bytes));
  if (files.empty()) return false;

  const Stopwatch watch;
  const double cpus = sheaf::ClusterResources()["CPU"];
  const uint64_t group_bytes = bytes / static_cast<uint64_t>(4 * cpus + 1) + 1;
  BucketRefs buckets;
  std::vector<std::string> group;
  size_t groups = 0;
  uint64_t in_group = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    group.push_back(files[i].first);
    in_group += files[i].second;
    if (in_group < group_bytes && i + 1 < files.size()) continue;
    auto [a, b, c, d] = sheaf::Task(Map).RemoteTuple(group);
    buckets[0].push_back(a);
    buckets[1].push_back(b);
    buckets[2].push_back(c);
    buckets[3].push_back(d);
    group.clear();
    in_group = 0;
    ++groups;
  }
  std::vector<sheaf::ObjectRef<Reduced>> reduced;
  for (const auto& parts : buckets) reduced.push_back(sheaf::Task(Reduce).Remote(parts));

  Counts counts;
  std::set<uint32_t> processes;
  while (!reduced.empty()) {
    auto [ready, rest] = sheaf::Wait(std::move(reduced));
    Reduced part = sheaf::Get(ready[0]);
    processes.insert(part.process);
    counts.merge(part.counts);
    reduced = std::move(rest);
  }
  const double seconds = watch.seconds();
  uint64_t words = 0;
  for (const auto& [word, count] : counts) words += static_cast<uint64_t>(count);
  Row("tasks", std::to_string(groups) + " map, " + std::to_string(kBuckets) + " reduce in " +
                   std::to_string(processes.size()) +
                   (processes.size() == 1 ? " process" : " processes"));
  Row("words",
      WithCommas(words) + ", " + WithCommas(counts.size()) + " different, in " + Seconds(seconds));

  std::vector<std::pair<int64_t, std::string>> top;
  for (const auto& [word, count] : counts) top.emplace_back(-count, word);
  std::partial_sort(top.begin(), top.begin() + static_cast<int>(std::min<size_t>(8, top.size())),
                    top.end());
  top.resize(std::min<size_t>(8, top.size()));
  for (const auto& [negative, word] : top) {
    Row(word, Bar(1.0 * static_cast<double>(negative) / static_cast<double>(top[0].first), 28) +
                  " " + WithCommas(static_cast<uint64_t>(-negative)));
  }

  const Stopwatch alone;
  Counts again;
  for (const auto& [path, size] : files)
    ForEachWord(path, [&](const std::string& word) { ++again[word]; });
  const bool same = again == counts;
  Row("check", same ? "one process alone counts the same, in " + Seconds(alone.seconds())
                    : "one process alone counts otherwise");
  return same;
}

}  // namespace examples
