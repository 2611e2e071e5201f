// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/flags/asking_commands.h"

#include <CLI/CLI.hpp>
#include <string>

#include "cli/flags/query_flags.h"

namespace sheaf::cli {

void AddList(CLI::App& app, ListOptions& options, std::function<int()>& run) {
  CLI::App* const command =
      app.add_subcommand("list", "List nodes, actors, tasks, objects, jobs and so on");
  command->callback([&options, &run] { run = [&options] { return RunList(options); }; });
  command->add_option("KIND", options.kind, "What to list")
      ->required()
      ->check(CLI::IsMember(ListedKinds()));
  command
      ->add_option(
          "--filter", options.filters,
          "Rows of which this holds, KEY=VALUE, KEY!=VALUE or KEY~VALUE (contains); may be "
          "repeated. Keys: those of --json; a wrong one names them")
      ->type_name("FILTER")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  AddTyped(command, "--order", options.order, "KEY",
           "Ordered by this key; -KEY: the largest first. Tasks come in an order of their own");
  AddTyped(command, "--limit", options.limit, "N", "Rows at most (default 10000)");
  command
      ->add_flag("--ended{true}", options.ended,
                 "With tasks: those that have ended, too, the last ones first; --ended=only: no "
                 "others")
      ->type_name("");
  AddQueryOptions(command, options.query);
  command->footer(
      "\nFunctions: how many calls of each there are and have ended, and how long they took.\n"
      "Cluster events: the last ones, the oldest first.\n"
      "Train runs: those of sheaf.train, the newest first.\n"
      "Examples: sheaf list tasks --filter state=FAILED --ended=only --limit 20\n"
      "          sheaf list objects --order=-size_bytes --limit 10\n");
}

void AddKv(CLI::App& app, KvOptions& options, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("kv", "List, read and delete keys of the cluster's key-value store");
  command->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, int (*work)(const KvOptions&)) {
    CLI::App* one = command->add_subcommand(name, help);
    one->callback([&options, &run, work] { run = [&options, work] { return work(options); }; });
    one->add_option("--namespace", options.name_space,
                    std::string(name) == "list" ? "Of one name space only (default: of all)"
                                                : "Where the key is (default: the empty one)")
        ->type_name("NAME");
    AddQueryOptions(one, options.query);
    return one;
  };
  CLI::App* list = add("list", "Show keys, their sizes, and the jobs that need them", RunKvList);
  list->add_option("PREFIX", options.key, "What the keys begin with (default: anything)");
  list->add_option("--limit", options.limit, "Keys to show at most (default 10000)")
      ->type_name("N");
  list->footer(
      "\nA key with jobs goes by itself when the last of them has ended and left no detached "
      "actor:\nsheaf-functions and sheaf-packages hold what drivers sent. What was uploaded for "
      "jobs goes when\nnone that is remembered names it. Other keys stay until they are "
      "deleted.\nExample: sheaf kv list --namespace sheaf-packages\n");
  add("get", "Write the value of a key to the standard output, as it is", RunKvGet)
      ->add_option("KEY", options.key, "The key")
      ->required();
  CLI::App* remove = add("delete", "Delete a key, or all that begin alike", RunKvDelete);
  remove->add_option("KEY", options.key, "The key, or what keys begin with")->required();
  remove->add_flag("--prefix", options.prefix, "All keys that begin with KEY");
  remove->footer(
      "\nJobs whose functions or packages are deleted fail where a worker needs them next.\n");
}

void AddLogs(CLI::App& app, LogsOptions& options, std::function<int()>& run) {
  CLI::App* const command =
      app.add_subcommand("logs", "List the logs of the nodes, or show or follow one");
  command->callback([&options, &run] { run = [&options] { return RunLogs(options); }; });
  command->add_option("WHAT", options.what,
                      "cluster (the default), actor, task, worker or job; or a GLOB");
  command->add_option(
      "NAME", options.name,
      "What file names must fit, as 'worker-*.err'; the id of an actor, a task or a "
      "submitted job; the pid of a worker");
  command->add_option("--id,--pid", options.id, "As NAME")->type_name("ID");
  command->add_option("--node,--node-id", options.node, "Of this node only: its number, or its id")
      ->type_name("NODE");
  command->add_option("--node-ip", options.node_ip, "Of the node with this address only")
      ->type_name("IP");
  command->add_option("--tail", options.tail, "The last N lines (default 1000); -1: all")
      ->type_name("N");
  command->add_flag("-f,--follow", options.follow,
                    "Go on with what is written, until who writes it has ended");
  command->add_flag("--err", options.errors, "What a process wrote as errors");
  command->add_option("-a,--attempt-number", options.attempt, "Which attempt of a task (default 0)")
      ->type_name("N");
  AddQueryOptions(command, options.query);
  command->footer(
      "\nA glob that one file fits shows that file; else the files are listed.\n"
      "Examples: sheaf logs 'node*.log' --node 2\n"
      "          sheaf logs actor 0000000100000003000000000000000a --follow\n");
}

}  // namespace sheaf::cli
