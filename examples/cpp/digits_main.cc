// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <sheaf/sheaf.h>

#include "digits.h"

// digits [FILE.npz]
int main(int argc, char** argv) {
  sheaf::Init(argc, argv);
  return examples::RunDigits(argc > 1 ? argv[1] : SHEAF_DIGITS_FILE) ? 0 : 1;
}
