// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Reads NumPy's .npz files: zip archives of .npy arrays, stored or deflated.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace examples {

struct NpyArray {
  std::string type;  // NumPy's: "<f4", "<i8".
  std::vector<size_t> shape;
  std::string bytes;  // Row by row.

  size_t size() const;  // Elements.
  // The elements as floats. Throws std::runtime_error for types other than '<f4', '<f8', '<i4',
  // '<i8', '|u1'.
  std::vector<float> Floats() const;
};

// By name, without ".npy". Throws std::runtime_error: the file is not there, or is no such archive.
std::map<std::string, NpyArray> ReadNpz(const std::string& path);

}  // namespace examples
