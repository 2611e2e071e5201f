// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What this machine offers: processors, GPUs, and the optional features of its kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sheaf {

// Processors that this process may use: its affinity, or the quota of its control group, if that is
// less. At least 1; a quota of 1.5 is 1.5.
double UsableCpus();
// The quota in the text of a control group's file: "150000 100000" (version 2) or the two numbers
// of version 1. 0: none ("max", -1), or malformed.
double ParseCpuQuota(const std::string& quota_and_period);

// Numbers of the GPUs that this process sees: NVIDIA's, less those that CUDA_VISIBLE_DEVICES
// (`visible`; "unset" is all) leaves out.
std::vector<uint32_t> FindGpus(const std::string& visible);

// One line a feature, with what is used instead: "pidfd: yes", "MADV_POPULATE_WRITE: no (pages are
// written one by one)".
std::vector<std::string> ProbeKernelFeatures();

std::string HostName();

// Lets this process open as many descriptors as it may. Returns the limit from before, for its
// children: programs that use select(2) cannot handle more.
uint64_t RaiseOpenFileLimit();

}  // namespace sheaf
