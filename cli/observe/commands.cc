// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/observe/commands.h"

#include <utility>

#include "cli/flags/query_flags.h"

namespace sheaf::cli {

void ObserveCommands::AddTo(CLI::App& app,
                            const std::function<void(std::function<int()>)>& choose) {
  const auto add = [&](const char* name, const char* help, std::function<int()> run) {
    CLI::App* command = app.add_subcommand(name, help);
    command->callback([choose, run = std::move(run)] { choose(run); });
    return command;
  };
  CLI::App* stack = add("stack", "Show what each thread of processes does now",
                        [this] { return RunStack(stack_); });
  stack
      ->add_option("WHAT", stack_.names,
                   "Processes: a pid, NODE.PROCESS, or the id of an actor or of a task that runs "
                   "(default: all)")
      ->type_name("");
  AddTyped(stack, "--node", stack_.node, "N", "Of this node only, as sheaf list nodes prints it")
      ->check(CLI::Range(1u, UINT32_MAX));
  AddQueryOptions(stack, stack_.query);
  stack->footer(
      "\nProcesses tell it themselves, also while native code holds the interpreter; nothing is "
      "traced\nor stopped. Of one that does not answer the kernel says what its threads wait for.\n"
      "Example: sheaf stack 4711\n");

  CLI::App* profile = add("profile", "Show where the time of Python calls went",
                          [this] { return RunProfile(profile_); });
  AddTyped(profile, "--function", profile_.function, "NAME",
           "Only what this function took, with what it called");
  AddTyped(profile, "--job", profile_.job, "N", "Of this job only");
  AddTyped(profile, "--node", profile_.node, "N", "Of this node only")
      ->check(CLI::Range(1u, UINT32_MAX));
  AddTyped(profile, "--seconds", profile_.seconds, "S",
           "The last ones (default 600; an hour is remembered)")
      ->check(CLI::Range(1.0, 3600.0));
  AddTyped(profile, "--format", profile_.format, "FORMAT",
           "text, json, folded, svg (a flame graph), speedscope or pprof");
  AddQueryOptions(profile, profile_.query);
  profile->footer(
      "\nWorkers always note it, SHEAF_PROFILE_HZ times a second; so it is there for what has "
      "already ended.\nExample: sheaf profile --seconds 60 --format svg > profile.svg\n");

  CLI::App* timeline = add("timeline", "Write when calls ran, for viewers of traces",
                           [this] { return RunTimeline(timeline_); });
  timeline->add_option("FILE", timeline_.file, "Where to (default: the standard output)");
  AddTyped(timeline, "--job", timeline_.job, "N", "Of this job only");
  AddTyped(timeline, "--format", timeline_.format, "FORMAT",
           "json: the last 200,000 calls, for chrome://tracing and Perfetto; perfetto: 2,000,000");
  AddQueryOptions(timeline, timeline_.query);
  timeline->footer("\nExample: sheaf timeline trace.json; then open it in ui.perfetto.dev\n");

  CLI::App* dump = add("dump", "Write what a bug report wants to know into a file",
                       [this] { return RunDump(dump_); });
  dump->add_option("FILE", dump_.file, "Made anew, as sheaf.tar.gz")->required();
  AddQueryOptions(dump, dump_.query);
  dump->footer(
      "\nState, settings, ends of logs, stacks, profile and metrics, without tokens and without "
      "the "
      "values\nof variables that are not Sheaf's own.\n");
}

}  // namespace sheaf::cli
