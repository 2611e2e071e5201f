// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "metrics/user_metrics.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "base/log.h"

namespace sheaf::metrics {
namespace {

std::vector<std::string_view> Split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

bool IsName(std::string_view name) {
  return !name.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
         });
}

// The fields from `first` on, in pairs. False: they are none.
bool ReadLabels(const std::vector<std::string_view>& fields, size_t first,
                prometheus::ClientMetric* metric) {
  for (size_t i = first; i + 1 < fields.size(); i += 2) {
    if (!IsName(fields[i]) || fields[i] == "pid" || fields[i] == "le") return false;
    metric->label.push_back({std::string(fields[i]), std::string(fields[i + 1])});
  }
  return (fields.size() - first) % 2 == 0;
}

bool ReadBuckets(std::string_view text, prometheus::ClientMetric::Histogram* histogram) {
  uint64_t before = 0;
  double bound_before = -std::numeric_limits<double>::infinity();
  for (const std::string_view bucket : Split(text, ',')) {
    const std::vector<std::string_view> parts = Split(bucket, ':');
    double bound = 0;
    uint64_t count = 0;
    if (parts.size() != 2 || !absl::SimpleAtod(View(parts[0]), &bound) ||
        !absl::SimpleAtoi(View(parts[1]), &count) || !(bound > bound_before) || count < before)
      return false;
    histogram->bucket.push_back({count, bound});
    before = count;
    bound_before = bound;
  }
  histogram->sample_count = before;
  return bound_before == std::numeric_limits<double>::infinity();
}

bool ReadSeries(const std::vector<std::string_view>& fields, prometheus::MetricType type,
                prometheus::ClientMetric* metric) {
  double value = 0;
  if (fields.size() < 2 || !absl::SimpleAtod(View(fields[1]), &value)) return false;
  if (type != prometheus::MetricType::Histogram) {
    (type == prometheus::MetricType::Counter ? metric->counter.value : metric->gauge.value) = value;
    return fields[0] == "S" && ReadLabels(fields, 2, metric);
  }
  metric->histogram.sample_sum = value;
  return fields[0] == "H" && fields.size() >= 3 && ReadBuckets(fields[2], &metric->histogram) &&
         ReadLabels(fields, 3, metric);
}

bool TypeOf(std::string_view word, prometheus::MetricType* type) {
  if (word == "counter") {
    *type = prometheus::MetricType::Counter;
  } else if (word == "gauge") {
    *type = prometheus::MetricType::Gauge;
  } else if (word == "histogram") {
    *type = prometheus::MetricType::Histogram;
  } else {
    return false;
  }
  return true;
}

uint64_t KeyOf(const prometheus::ClientMetric& metric) {
  std::vector<std::pair<std::string_view, std::string_view>> labels;
  for (const auto& label : metric.label) labels.emplace_back(label.name, label.value);
  return absl::HashOf(labels);
}

// Bounds that are others than those of `to` are no reason to lose the observations: these are counted
// as beyond all bounds.
void AddHistogram(const prometheus::ClientMetric::Histogram& from,
                  prometheus::ClientMetric::Histogram& to) {
  to.sample_count += from.sample_count;
  to.sample_sum += from.sample_sum;
  const auto same_bound = [](const auto& a, const auto& b) {
    return a.upper_bound == b.upper_bound;
  };
  if (std::equal(to.bucket.begin(), to.bucket.end(), from.bucket.begin(), from.bucket.end(),
                 same_bound)) {
    for (size_t i = 0; i < to.bucket.size(); ++i)
      to.bucket[i].cumulative_count += from.bucket[i].cumulative_count;
  } else {
    to.bucket.back().cumulative_count += from.bucket.back().cumulative_count;
  }
}

void AddToOverflow(prometheus::ClientMetric metric, UserFamily& family) {
  if (!family.overflow) {
    metric.label = {{"overflow", "true"}};
    family.overflow = std::move(metric);
    return;
  }
  family.overflow->counter.value += metric.counter.value;
  family.overflow->gauge.value += metric.gauge.value;
  if (family.type == prometheus::MetricType::Histogram)
    AddHistogram(metric.histogram, family.overflow->histogram);
}

bool IsOld(const std::filesystem::path& file) {
  std::error_code error;
  const auto written = std::filesystem::last_write_time(file, error);
  return !error && std::filesystem::file_time_type::clock::now() - written > kServedAfterEnd;
}

}  // namespace

bool SeriesLimit::Admit(const std::string& metric, uint64_t key) {
  Metric& of = metrics_[metric];
  const auto [known, is_new] = of.series.try_emplace(key);
  known->second.round = round_;
  if (!is_new) return known->second.admitted;
  if (of.admitted < kMaxSeriesOfMetric && admitted_ < kMaxUserSeries) {
    known->second.admitted = true;
    ++of.admitted;
    ++admitted_;
  } else if (!std::exchange(of.is_over, true)) {
    came_over_.push_back(metric);
  }
  return known->second.admitted;
}

std::vector<std::string> SeriesLimit::EndOfRound() {
  for (auto& [name, metric] : metrics_) {
    absl::erase_if(metric.series, [&, &of = metric](const auto& entry) {
      if (entry.second.round == round_) return false;
      if (entry.second.admitted) {
        --of.admitted;
        --admitted_;
      }
      return true;
    });
  }
  absl::erase_if(metrics_, [](const auto& entry) { return entry.second.series.empty(); });
  ++round_;
  return std::exchange(came_over_, {});
}

void ReadUserMetrics(std::string_view content, std::string_view pid, bool with_gauges,
                     SeriesLimit& limit, UserFamilies* families) {
  UserFamily* family = nullptr;
  for (const std::string_view line : Split(content, '\n')) {
    const std::vector<std::string_view> fields = Split(line, '\t');
    if (fields[0] == "F") {
      family = nullptr;
      prometheus::MetricType type;
      if (fields.size() != 4 || !TypeOf(fields[1], &type) || !IsName(fields[2])) continue;
      if (type == prometheus::MetricType::Gauge && !with_gauges) continue;
      auto [known, added] = families->try_emplace(std::string(fields[2]));
      if (added) {
        known->second.name = known->first;
        known->second.help = std::string(fields[3]);
        known->second.type = type;
      }
      if (known->second.type == type) family = &known->second;
      continue;
    }
    prometheus::ClientMetric metric;
    if (family == nullptr || !ReadSeries(fields, family->type, &metric)) continue;
    metric.label.push_back({"pid", std::string(pid)});
    if (limit.Admit(family->name, KeyOf(metric))) {
      family->metric.push_back(std::move(metric));
    } else {
      AddToOverflow(std::move(metric), *family);
    }
  }
}

void UserMetrics::Retire(std::string_view content, const std::string& pid) {
  UserFamilies families;
  ReadUserMetrics(content, pid, /*with_gauges=*/false, limit_, &families);
  for (auto& [name, family] : families) {
    const bool has_room = retired_.size() < kMaxSeriesOfMetric || retired_.contains(name);
    if (!family.overflow || !has_room) continue;
    family.metric.clear();
    const auto [known, is_new] = retired_.try_emplace(name, family);
    if (!is_new && known->second.type == family.type)
      AddToOverflow(*std::move(family.overflow), known->second);
  }
}

std::vector<prometheus::MetricFamily> UserMetrics::Collect(const std::string& directory) {
  namespace fs = std::filesystem;
  UserFamilies families;
  size_t files = 0;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string pid = entry->path().filename().string();
    if (!std::all_of(pid.begin(), pid.end(),
                     [](unsigned char c) { return absl::ascii_isdigit(c); }))
      continue;
    std::error_code unknown;
    const bool runs = fs::exists("/proc/" + pid, unknown);
    const bool is_retired = !runs && IsOld(entry->path());
    if (!is_retired && ++files > kMaxUserFiles) continue;
    std::string content(kMaxUserFileBytes, '\0');
    std::ifstream file(entry->path(), std::ios::binary);
    file.read(content.data(), static_cast<std::streamsize>(content.size()));
    content.resize(static_cast<size_t>(file.gcount()));
    if (is_retired) {
      Retire(content, pid);
      fs::remove(entry->path(), unknown);
      continue;
    }
    ReadUserMetrics(content, pid, runs, limit_, &families);
  }
  for (const auto& [name, retired] : retired_) {
    const auto [known, is_new] = families.try_emplace(name, retired);
    if (!is_new && known->second.type == retired.type)
      AddToOverflow(*retired.overflow, known->second);
  }
  for (const std::string& metric : limit_.EndOfRound()) {
    Log(LogLevel::kWarning, "the metric ", metric, " has more than ", kMaxSeriesOfMetric,
        " series on this node, or all have more than ", kMaxUserSeries,
        ": its further ones are served as one, with the label overflow=\"true\"; give its tags "
        "fewer values");
  }
  std::vector<prometheus::MetricFamily> out;
  for (auto& [name, family] : families) {
    if (family.overflow) family.metric.push_back(*std::move(family.overflow));
    out.push_back(std::move(family));
  }
  return out;
}

}  // namespace sheaf::metrics
