// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The tour: word count, a stateful counter, and training that loses a worker; each is checked
// against one process alone. Joins the node that SHEAF_ADDRESS names, or starts one.
//
//   main_job [--short] [FOLDER]    counts the words of FOLDER; of Sheaf's own sources when none is
//                                  named
#include <sheaf/sheaf.h>
#include <cstdio>
#include <exception>
#include <string>

#include "console.h"
#include "counter.h"
#include "train_digits.h"
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
  const bool is_short = argc > 1 && std::string(argv[1]) == "--short";
  const int folder = is_short ? 2 : 1;
  const examples::Stopwatch watch;
  sheaf::InitOptions options;
  options.cpus = examples::kTrainWorkers;  // Of a node of its own.
  sheaf::Init(argc, argv, options);
  const double start = watch.seconds();
  examples::Title("Sheaf", "ready after " + examples::Seconds(start));
  for (const sheaf::NodeInfo& node : sheaf::Nodes()) {
    if (node.state != "ALIVE") continue;
    examples::Row("node " + std::to_string(node.number),
                  node.host_name + ": " + Described(node.total));
  }
  const std::string metrics = sheaf::MetricsUrl();
  if (!metrics.empty()) examples::Row("metrics", metrics);

  const bool words = examples::RunWordCount(argc > folder ? argv[folder] : SHEAF_SOURCE_FOLDER);
  const bool counter = examples::RunCounter(is_short ? 10'000 : 100'000);
  const bool training = examples::RunTraining(SHEAF_DIGITS_FILE, is_short ? 6 : 15, !is_short);

  const bool all = words && counter && training;
  examples::Title(all ? "All right" : "Something is wrong",
                  "word count " + std::string(words ? "ok" : "FAILED") + ", counter " +
                      (counter ? "ok" : "FAILED") + ", training " + (training ? "ok" : "FAILED") +
                      ", in " + examples::Seconds(watch.seconds()));
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
