// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The tour: word count, training and a stateful counter on one node, each checked against one
// process alone.
//
//   main_job [FOLDER]    counts the words of FOLDER; of Sheaf's own sources when none is named
#include <sheaf/sheaf.h>
#include <cstdio>
#include <exception>
#include <string>

#include "console.h"
#include "counter.h"
#include "digits.h"
#include "word_count.h"

namespace {

std::string Described(const std::map<std::string, double>& resources) {
  std::string text;
  for (const auto& [name, amount] : resources) {
    if (!text.empty()) text += ", ";
    if (name == "memory" || name == "object_store_memory") {
      text += examples::Bytes(static_cast<uint64_t>(amount)) +
              (name == "memory" ? " memory" : " store");
    } else {
      text += std::to_string(static_cast<int>(amount)) + " " + name;
    }
  }
  return text;
}

int Run(int argc, char** argv) {
  const examples::Stopwatch watch;
  sheaf::Init(argc, argv);
  const double start = watch.seconds();
  examples::Title("Sheaf", "ready after " + examples::Seconds(start));
  for (const sheaf::NodeInfo& node : sheaf::Nodes()) {
    examples::Row("node " + std::to_string(node.number),
                  node.host_name + ": " + Described(node.total));
  }
  const std::string metrics = sheaf::MetricsUrl();
  if (!metrics.empty()) examples::Row("metrics", metrics);

  const bool words = examples::RunWordCount(argc > 1 ? argv[1] : SHEAF_SOURCE_FOLDER);
  const bool digits = examples::RunDigits(SHEAF_DIGITS_FILE);
  const bool counter = examples::RunCounter(100'000);

  const bool all = words && digits && counter;
  examples::Title(all ? "All right" : "Something is wrong",
                  "word count " + std::string(words ? "ok" : "FAILED") + ", digits " +
                      (digits ? "ok" : "FAILED") + ", counter " + (counter ? "ok" : "FAILED") +
                      ", in " + examples::Seconds(watch.seconds()));
  if (!metrics.empty()) examples::Row("metrics", metrics + " while this program runs");
  std::printf("\n");
  return all ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "main_job: %s\n", error.what());
    return 1;
  }
}
