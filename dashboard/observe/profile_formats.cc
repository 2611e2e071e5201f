// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/observe/profile_formats.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/text/json.h"
#include "dashboard/observe/flame_graph.h"
#include "dashboard/observe/gzip.h"
#include "proto/pprof.pb.h"

namespace sheaf::dashboard {
namespace {

constexpr double kShownPart = 0.005;  // Of the whole, for people: what is less is summed up.

using Nodes = google::protobuf::RepeatedPtrField<proto::ProfileNode>;

// The places of a node and of those that called it, the innermost first.
std::vector<int> PathOf(const Nodes& nodes, int node) {
  std::vector<int> path{node};
  // A parent comes before its children: what is not so is another node's nonsense.
  for (uint32_t up = nodes[node].parent(); up != 0 && static_cast<int>(up) <= path.back();
       up = nodes[path.back()].parent())
    path.push_back(static_cast<int>(up) - 1);
  return path;
}

std::string FileOf(const proto::ProfileNode& node) {
  const std::string& file = node.file();
  return file.substr(file.rfind('/') + 1);
}

std::string ShownName(const proto::ProfileNode& node) {
  std::string name = node.function();
  if (node.file().empty()) return name;
  absl::StrAppend(&name, " (", FileOf(node));
  if (node.line() != 0) absl::StrAppend(&name, ":", node.line());  // Compiled code has no line.
  name += ')';
  return name;
}

std::string Json(const proto::StateAnswer& answer) {
  JsonArray functions, late;
  for (const proto::ProfileNode& node : answer.profile()) {
    functions.Add(
        JsonObject()
            .Add("function", JsonString(node.function()))
            .Add("file", JsonString(node.file()))
            .Add("line", node.line() == 0 ? "null" : JsonNumber(uint64_t{node.line()}))
            .Add("job", JsonNumber(uint64_t{node.job()}))
            .Add("parent", node.parent() == 0 ? "null" : JsonNumber(uint64_t{node.parent() - 1}))
            .Add("self_us", JsonNumber(uint64_t{node.self_us()}))
            .Done());
  }
  for (const uint32_t node : answer.late_nodes()) late.Add(JsonNumber(uint64_t{node}));
  return JsonObject()
      .Add("functions", functions.Done())
      .Add("truncated", JsonBool(answer.truncated()))
      .Add("late_nodes", late.Done())
      .Done();
}

std::string Folded(const Nodes& nodes) {
  std::string text;
  for (int i = 0; i < nodes.size(); ++i) {
    if (nodes[i].self_us() == 0) continue;
    std::string line;
    const std::vector<int> path = PathOf(nodes, i);
    for (auto at = path.rbegin(); at != path.rend(); ++at) {
      if (!line.empty()) line += ';';
      absl::StrAppend(&line, absl::StrReplaceAll(absl::Utf8SafeCHexEscape(ShownName(nodes[*at])),
                                                 {{";", ","}}));
    }
    absl::StrAppend(&text, line, " ", nodes[i].self_us(), "\n");
  }
  return text;
}

std::string Speedscope(const Nodes& nodes) {
  std::map<std::tuple<std::string, std::string, uint32_t>, size_t> known;
  JsonArray frames, samples, weights;
  std::vector<size_t> numbers;
  uint64_t total = 0;
  for (const proto::ProfileNode& node : nodes) {
    const auto [frame, is_new] =
        known.try_emplace({node.function(), node.file(), node.line()}, known.size());
    numbers.push_back(frame->second);
    if (!is_new) continue;
    frames.Add(JsonObject()
                   .Add("name", JsonString(node.function()))
                   .Add("file", JsonString(node.file()))
                   .Add("line", JsonNumber(uint64_t{node.line()}))
                   .Done());
  }
  for (int i = 0; i < nodes.size(); ++i) {
    if (nodes[i].self_us() == 0) continue;
    const std::vector<int> path = PathOf(nodes, i);
    JsonArray sample;
    for (auto at = path.rbegin(); at != path.rend(); ++at)
      sample.Add(JsonNumber(uint64_t{numbers[static_cast<size_t>(*at)]}));
    samples.Add(sample.Done());
    weights.Add(JsonNumber(uint64_t{nodes[i].self_us()}));
    total += nodes[i].self_us();
  }
  return JsonObject()
      .Add("$schema", JsonString("https://www.speedscope.app/file-format-schema.json"))
      .Add("exporter", JsonString("sheaf"))
      .Add("shared", JsonObject().Add("frames", frames.Done()).Done())
      .Add("profiles", JsonArray()
                           .Add(JsonObject()
                                    .Add("type", JsonString("sampled"))
                                    .Add("name", JsonString("sheaf"))
                                    .Add("unit", JsonString("microseconds"))
                                    .Add("startValue", "0")
                                    .Add("endValue", JsonNumber(total))
                                    .Add("samples", samples.Done())
                                    .Add("weights", weights.Done())
                                    .Done())
                           .Done())
      .Done();
}

// Texts as places in the table of a profile.
class StringTable {
 public:
  explicit StringTable(proto::pprof::Profile& profile) : profile_(profile) { Place(""); }
  int64_t Place(const std::string& text) {
    const auto [known, is_new] = known_.try_emplace(text, profile_.string_table_size());
    if (is_new) profile_.add_string_table(text);
    return known->second;
  }

 private:
  proto::pprof::Profile& profile_;
  std::map<std::string, int64_t> known_;
};

std::string Pprof(const Nodes& nodes, int64_t from, int64_t to) {
  proto::pprof::Profile profile;
  StringTable texts(profile);
  const auto type = [&](proto::pprof::ValueType& value) {
    value.set_type(texts.Place("wall"));
    value.set_unit(texts.Place("microseconds"));
  };
  type(*profile.add_sample_type());
  type(*profile.mutable_period_type());
  profile.set_time_nanos(from);
  profile.set_duration_nanos(to - from);
  std::map<std::tuple<std::string, std::string, uint32_t>, uint64_t> known;
  std::vector<uint64_t> locations;
  for (const proto::ProfileNode& node : nodes) {
    const auto [found, is_new] =
        known.try_emplace({node.function(), node.file(), node.line()}, known.size() + 1);
    locations.push_back(found->second);
    if (!is_new) continue;
    proto::pprof::Function& function = *profile.add_function();
    function.set_id(found->second);
    function.set_name(texts.Place(node.function()));
    function.set_system_name(function.name());
    function.set_filename(texts.Place(node.file()));
    function.set_start_line(node.line());
    proto::pprof::Location& location = *profile.add_location();
    location.set_id(found->second);
    location.add_line()->set_function_id(found->second);
    location.mutable_line(0)->set_line(node.line());
  }
  for (int i = 0; i < nodes.size(); ++i) {
    if (nodes[i].self_us() == 0) continue;
    proto::pprof::Sample& sample = *profile.add_sample();
    for (const int at : PathOf(nodes, i))
      sample.add_location_id(locations[static_cast<size_t>(at)]);
    sample.add_value(static_cast<int64_t>(nodes[i].self_us()));
    proto::pprof::Label& label = *sample.add_label();
    label.set_key(texts.Place("job"));
    label.set_num(nodes[i].job());
  }
  return Gzip(profile.SerializeAsString());
}

std::string Text(const proto::StateAnswer& answer) {
  const Nodes& nodes = answer.profile();
  std::vector<uint64_t> total(static_cast<size_t>(nodes.size()) + 1);
  std::vector<std::vector<int>> children(total.size());
  for (int i = nodes.size(); i-- > 0;) {
    const auto place = static_cast<size_t>(i) + 1;
    total[place] += nodes[i].self_us();
    const size_t parent = nodes[i].parent() < place ? nodes[i].parent() : 0;
    total[parent] += total[place];
    children[parent].push_back(i);
  }
  std::string text = absl::StrFormat("%10s %6s  FUNCTION\n", "SECONDS", "PART");
  // Depth first; the deepest stacks have some hundred frames.
  std::vector<std::pair<int, int>> open{{-1, 0}};
  while (!open.empty()) {
    const auto [node, depth] = open.back();
    open.pop_back();
    if (node >= 0) {
      const uint64_t time = total[static_cast<size_t>(node) + 1];
      absl::StrAppendFormat(&text, "%10.2f %5.1f%%  %*s%s\n", static_cast<double>(time) / 1e6,
                            100.0 * static_cast<double>(time) / static_cast<double>(total[0]),
                            2 * (depth - 1), "", absl::Utf8SafeCHexEscape(ShownName(nodes[node])));
    }
    std::vector<int>& below = children[static_cast<size_t>(node + 1)];
    const auto time_of = [&](int child) { return total[static_cast<size_t>(child) + 1]; };
    std::sort(below.begin(), below.end(), [&](int a, int b) { return time_of(a) < time_of(b); });
    for (const int child : below) {
      if (static_cast<double>(time_of(child)) >= kShownPart * static_cast<double>(total[0]))
        open.emplace_back(child, depth + 1);
    }
  }
  if (answer.truncated()) text += "(functions that took less are left out)\n";
  for (const uint32_t node : answer.late_nodes())
    absl::StrAppend(&text, "(node ", node, " has not answered in time)\n");
  return text;
}

}  // namespace

std::optional<ProfileFormat> ProfileFormatOf(std::string_view name) {
  static const auto& names =
      *new std::map<std::string_view, ProfileFormat>{{"text", ProfileFormat::kText},
                                                     {"json", ProfileFormat::kJson},
                                                     {"folded", ProfileFormat::kFolded},
                                                     {"svg", ProfileFormat::kSvg},
                                                     {"speedscope", ProfileFormat::kSpeedscope},
                                                     {"pprof", ProfileFormat::kPprof}};
  const auto found = names.find(name);
  return found == names.end() ? std::nullopt : std::optional(found->second);
}

std::string FormatProfile(const proto::StateAnswer& answer, ProfileFormat format, int64_t from,
                          int64_t to) {
  switch (format) {
    case ProfileFormat::kText:
      return Text(answer);
    case ProfileFormat::kJson:
      return Json(answer);
    case ProfileFormat::kFolded:
      return Folded(answer.profile());
    case ProfileFormat::kSvg:
      return FlameGraphSvg(answer);
    case ProfileFormat::kSpeedscope:
      return Speedscope(answer.profile());
    case ProfileFormat::kPprof:
      return Pprof(answer.profile(), from, to);
  }
  return {};
}

const char* ContentTypeOf(ProfileFormat format) {
  switch (format) {
    case ProfileFormat::kJson:
    case ProfileFormat::kSpeedscope:
      return "application/json";
    case ProfileFormat::kSvg:
      return "image/svg+xml";
    case ProfileFormat::kPprof:
      return "application/octet-stream";
    default:
      return "text/plain; charset=utf-8";
  }
}

}  // namespace sheaf::dashboard
