// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <sheaf/sheaf.h>

#include "word_count.h"

// word_count [FOLDER]: of Sheaf's own sources when none is named.
int main(int argc, char** argv) {
  sheaf::Init(argc, argv);
  return examples::RunWordCount(argc > 1 ? argv[1] : SHEAF_SOURCE_FOLDER) ? 0 : 1;
}
