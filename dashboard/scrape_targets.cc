// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/scrape_targets.h"

#include <string_view>

#include "base/text/json.h"
#include "dashboard/state_rows.h"

namespace sheaf::dashboard {
namespace {

// "http://127.0.0.1:1234/metrics" -> "http" and "127.0.0.1:1234".
struct Place {
  std::string_view scheme;
  std::string_view host;
};
Place PlaceOf(std::string_view url) {
  const size_t colon = url.find("://");
  if (colon == std::string_view::npos) return {};
  const std::string_view rest = url.substr(colon + 3);
  return {url.substr(0, colon), rest.substr(0, rest.find('/'))};
}

template <class Node>
ScrapeTarget Of(const Node& node) {
  return {node.node(), node.metrics_url(), node.address(), NodeType(node.labels())};
}

}  // namespace

ScrapeTarget TargetOf(const proto::NodeRow& node) { return Of(node); }
ScrapeTarget TargetOf(const proto::NodeInfo& node) { return Of(node); }

std::string ScrapeTargetsJson(const std::vector<ScrapeTarget>& targets, uint32_t head) {
  std::string cluster;
  for (const ScrapeTarget& target : targets) {
    if (target.node == head) cluster = target.address;
  }
  JsonArray out;
  for (const ScrapeTarget& target : targets) {
    const Place place = PlaceOf(target.metrics_url);
    if (place.host.empty()) continue;
    JsonObject labels;
    labels.Add("job", JsonString("sheaf"))
        .Add("cluster", JsonString(cluster))
        .Add("node", JsonString(NodeIdText(target.node)))
        .Add("type", JsonString(target.type))
        .Add("head", JsonString(target.node == head ? "true" : "false"));
    if (place.scheme != "http") labels.Add("__scheme__", JsonString(place.scheme));
    out.Add(JsonObject()
                .Add("targets", JsonArray().Add(JsonString(place.host)).Done())
                .Add("labels", labels.Done())
                .Done());
  }
  return out.Done();
}

}  // namespace sheaf::dashboard
