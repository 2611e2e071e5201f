// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Jobs as JSON, in the form of Ray's JobDetails.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/ids.h"
#include "proto/gcs.pb.h"
#include "proto/raylet.pb.h"

namespace sheaf::dashboard {

// The last driver of each submission, and the drivers that belong to none.
struct Drivers {
  std::map<std::string, proto::JobRow> of_submission;  // By submission id.
  std::map<std::string, proto::JobRow> others;         // By job id, as JobId writes it.
  std::map<std::string, std::string> submission_of;    // Job id -> submission id.
};
Drivers SortDrivers(const proto::StateAnswer& jobs);
std::string JobId(uint32_t job);  // 8 hexadecimal digits.

// Where a node is, as clients are told.
struct NodePlace {
  std::string ip;
  std::string http_address;  // Of what the node itself serves over HTTP; empty: nothing.
};
using NodePlaces = std::map<NodeNumber, NodePlace>;
NodePlaces PlacesOf(const proto::StateAnswer& nodes);

// `driver` may be null. `redacts`: values of variables are left out.
std::string SubmissionJson(const proto::Submission& submission, const proto::JobRow* driver,
                           const NodePlaces& nodes, bool redacts);
std::string DriverJson(const proto::JobRow& row, const NodePlaces& nodes);

}  // namespace sheaf::dashboard
