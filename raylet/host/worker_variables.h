// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which environment variables a worker starts with, and which of a driver's leave its node. A
// driver's environment holds secrets (SHEAF_TOKEN, AWS_SECRET_ACCESS_KEY), so no other node and no
// disk gets it: workers on the driver's own node start with it, those of other nodes with their own
// node's, and over both lies what the runtime environment names. Variables are "NAME=value", whole.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/raylet.pb.h"

namespace sheaf {

// The name of a variable, with its '='.
std::string_view NameOf(std::string_view variable);

// `variables` without those that mark or admit another process than the worker: the cluster's
// token, the marks of a worker.
std::vector<std::string> ForWorkers(std::vector<std::string> variables);

// What of a node's own environment the workers of other nodes' drivers start with.
std::vector<std::string> OfNode(std::vector<std::string> variables);

// Takes from `start` the variables that do not leave the driver's node. The few that do say where
// code and libraries are found and how Sheaf itself behaves: kTravelling in the .cc.
void KeepWhatTravels(proto::JobStart* start);

// "${NAME}" and "$NAME" in the values of `over` become what those before, or `variables`, say of
// NAME. What nobody knows is nothing as "${NAME}", and stays as it is written as "$NAME".
void Expand(std::vector<std::string> variables, std::vector<std::string>* over);

// Sets `over` in `variables`; of one name there is one.
void PutOver(std::vector<std::string> over, std::vector<std::string>* variables);

}  // namespace sheaf
