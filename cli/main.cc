// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The `sheaf` command: reads the command line and hands over to the file of the command.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/version.h"
#include "cli/cert.h"
#include "cli/completion.h"
#include "cli/dashboard/command.h"
#include "cli/drain.h"
#include "cli/flags/asking_commands.h"
#include "cli/flags/query_flags.h"
#include "cli/gcs_main.h"
#include "cli/gcs_state.h"
#include "cli/kv.h"
#include "cli/list.h"
#include "cli/node.h"
#include "cli/observe/commands.h"
#include "cli/query.h"
#include "cli/run.h"
#include "cli/sessions.h"
#include "cli/start.h"
#include "cli/status.h"
#include "cli/stop.h"
#include "cli/why.h"
#include "dashboard/tables/listing.h"
#include "raylet/entrypoints/entrypoint_guard.h"

namespace sheaf::cli {
namespace {

constexpr char kFooter[] = R"(
Exit codes: 0 done, 1 it failed, 2 the command line means nothing, 3 no node runs there, 4 the node knows no such id,
5 no answer in time. Errors go to the standard error stream. `sheaf COMMAND --help` says more.
)";

// Parses into the members; `run` is what the chosen command does.
class CommandLine {
 public:
  CommandLine()
      : app_("Sheaf runs tasks, actors and objects on this machine and on others.", "sheaf") {
    app_.set_version_flag("--version", std::string("sheaf ") + std::string(kSheafVersion));
    app_.require_subcommand(0, 1);
    app_.footer(kFooter);
    app_.get_formatter()->column_width(34);
    AddStart();
    AddNode();
    AddGcsServe();
    AddStop();
    AddDrain();
    AddSessions();
    AddGcs();
    AddCert();
    AddDashboard();
    AddToken();
    AddStatus();
    AddList(app_, list_, run_);
    observe_.AddTo(app_, [this](std::function<int()> run) { run_ = std::move(run); });
    AddWhy();
    AddMemory();
    AddLogs(app_, logs_, run_);
    AddKv(app_, kv_, run_);
    AddRun();
    AddVersion();
    AddCompletion();
  }

  int Run(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app_.exit(error) == 0 ? kDone : kUsage;
    }
    if (!run_) {
      std::fputs(app_.help().c_str(), stderr);
      return kUsage;
    }
    return run_();
  }

 private:
  CLI::App* Command(const char* name, const char* help, std::function<int()> run) {
    CLI::App* command = app_.add_subcommand(name, help);
    command->callback([this, run = std::move(run)] { run_ = run; });
    return command;
  }

  void AddNodeOptions(CLI::App* command, NodeFlags& node) {
    AddTyped(command, "--dir", node.directory, "DIR",
             "Where session directories go, with a head's state (default: SHEAF_DIR, else "
             "$XDG_STATE_HOME/sheaf or ~/.local/state/sheaf, of root /var/lib/sheaf)");
    AddTyped(command, "--resume", node.resume, "DIR|latest",
             "Session of a node that has ended: names, detached actors and key-value pairs "
             "come back from its disk; latest: the one that was started last, or a new one "
             "if there is none");
    AddTyped(command, "--num-cpus", node.cpus, "N",
             "CPUs that tasks may use (default: those that this process may use)");
    AddTyped(command, "--num-gpus", node.gpus, "N", "GPUs (default: those found)");
    AddTyped(command, "--resources", node.resources, "NAME:N,...",
             "Further resources, as apple:2,pear:0.5");
    AddTyped(command, "--labels", node.labels, "KEY=VALUE,...",
             "Labels of the node, as zone=a,disk=ssd");
    AddTyped(command, "--memory", node.memory, "SIZE",
             "Memory for tasks that ask for some, as 4GiB");
    AddTyped(command, "--object-store-memory", node.store_memory, "SIZE",
             "Size of the object store, as 1GiB");
    AddTyped(command, "--metrics-address", node.metrics_address, "IP",
             "Where the metrics are served (default 127.0.0.1)");
    AddTyped(command, "--metrics-token-file", node.metrics_token_file, "FILE",
             "The token that who reads the metrics must send (Authorization: Bearer TOKEN); "
             "beyond this machine they are served with one only (default: "
             "SHEAF_METRICS_TOKEN_FILE, else none)");
    command->add_option("--metrics-port", node.metrics_port, "Their port (default: a free one)")
        ->check(CLI::Range(0, 65535))
        ->type_name("PORT");
    command->add_flag("--metrics-ray-names", node.ray_metric_names,
                      "Serve them under the names that boards made for Ray ask for, too");
    AddTyped(command, "--include-dashboard", node.include_dashboard, "true|false",
             "Whether the node serves the dashboard (default: a head does)")
        ->check(CLI::IsMember({"true", "false"}));
    AddTyped(command, "--dashboard-host", node.dashboard_host, "IP",
             "Where the dashboard listens (default 127.0.0.1)");
    AddTyped(command, "--dashboard-port", node.dashboard_port, "PORT",
             "Its port (default 8265, or the next that is free)")
        ->check(CLI::Range(0, 65535));
    AddTyped(command, "--dashboard-tls-cert", node.dashboard_tls_certificate, "FILE",
             "The dashboard's certificate, in PEM (default: beyond this machine that of --tls-dir, "
             "else none)");
    AddTyped(command, "--dashboard-tls-key", node.dashboard_tls_key, "FILE", "Its key");
    CLI::Option* const writable =
        command->add_flag("--dashboard-writable", node.dashboard_writable,
                          "Let browsers that logged in to the dashboard change something, too");
    command
        ->add_flag("--dashboard-read-only", node.dashboard_read_only,
                   "Let nobody change anything by the dashboard")
        ->excludes(writable);
    AddTyped(command, "--sd-file", node.targets_file, "FILE",
             "Where a head lists the metrics of all nodes for Prometheus (default: "
             "prometheus_sd.json in its session)");
    AddClusterOptions(command, node);
  }
  // How it reaches the other nodes of its cluster, and they it.
  void AddClusterOptions(CLI::App* command, NodeFlags& node) {
    AddTyped(command, "--address", node.join, "HOST:PORT", "The head of the cluster to join");
    AddTyped(command, "--host", node.host, "IP",
             "Address that this node listens on (default 127.0.0.1)");
    command
        ->add_option("--port", node.port,
                     "The one port for all other nodes (default: of a head 6379 unless it is "
                     "taken, else a free one)")
        ->check(CLI::Range(0, 65535))
        ->type_name("PORT");
    AddTyped(command, "--health-port", node.health_port, "PORT",
             "A port beside that one, which tells everybody whether the node is well: GET "
             "/api/healthz, /api/local_raylet_healthz, /api/gcs_healthz (default: none; those of "
             "the metrics and of the dashboard have them, too)")
        ->check(CLI::Range(1, 65535));
    AddTyped(command, "--advertise-address", node.advertise, "HOST:PORT",
             "What other nodes dial, if that is not where this one listens");
    command
        ->add_option("--unheard-limit", node.unheard_limit,
                     "Seconds after which a node that this one does not hear, while the head hears "
                     "both, is reported: the head then ends one of the two (default 15)")
        ->check(CLI::Range(1., 1e6))
        ->type_name("SECONDS");
    command
        ->add_option("--gcs-lost-timeout", node.gcs_lost_timeout,
                     "Seconds after which a node that hears nothing of the control store ends by "
                     "itself, 0: never (default 1800)")
        ->check(CLI::Range(0., 1e9))
        ->type_name("SECONDS");
    AddTyped(command, "--log-format", node.log_format, "text|json",
             "How daemons write their logs; json: with the names of the Elastic Common Schema, and "
             "what workers and jobs print in events.ndjson, too (default: SHEAF_LOG_FORMAT, else "
             "text)")
        ->check(CLI::IsMember({"text", "json"}));
    AddTyped(command, "--keep-jobs", node.keep_jobs, "N",
             "How many submitted jobs that have ended a head remembers, with their logs (default "
             "10000); the oldest go");
    AddTyped(command, "--token-file", node.token_file, "FILE",
             "The cluster's token (default: SHEAF_TOKEN, SHEAF_TOKEN_FILE, else the file "
             "token beside the sessions; a head makes it if it is missing)");
    AddTyped(command, "--tls-dir", node.tls_directory, "DIR",
             "ca.pem, node.pem and node.key for mutual TLS (default: SHEAF_TLS_DIR, else "
             "none); replaced there, new ones count within seconds");
    AddTyped(command, "--tls-peer-name", node.tls_peer_name, "NAME",
             "A name that each node's certificate must carry, as its common name or an "
             "alternative one (default: SHEAF_TLS_PEER_NAME, else any name)");
  }

  void AddStart() {
    CLI::App* command = Command("start", "Start a node on this machine, in the background", [this] {
      start_.node.join_timeout = static_cast<double>(start_.query.timeout) / kSecond;
      return block_ ? RunNode({.flags = start_.node}) : RunStart(start_);
    });
    command->add_flag("--head", start_.head, "Be the first node of a cluster");
    command->add_flag("--block", block_,
                      "Stay in the foreground until the node ends (as the command node)");
    AddNodeOptions(command, start_.node);
    AddJson(command, start_.query);
    AddTimeout(
        command, start_.query,
        "Seconds that the node may take to be ready; one that joins waits so long for its head");
    command->footer(
        "\nExamples: sheaf start --head --num-cpus 2 --object-store-memory 1GiB\n"
        "          sheaf start --address 10.0.0.1:6379\n");
  }
  void AddNode() {
    CLI::App* command =
        Command("node", "Run a node in the foreground: a GCS and a raylet in one process",
                [this] { return RunNode(node_); });
    command->group("");  // For Init and `sheaf start`: not a command that people type.
    AddNodeOptions(command, node_.flags);
    AddTyped(command, "--ready-fd", node_.ready_fd, "FD",
             "Descriptor that gets a line when the node is ready");
    AddTyped(command, "--join-timeout", node_.flags.join_timeout, "SECONDS",
             "What --timeout is to sheaf start");
    AddTyped(
        command, "--parent-fd", node_.parent_fd, "FD",
        "Descriptor of a pipe; the node ends, and leaves nothing, when its other end is closed");
  }
  void AddGcsServe() {
    CLI::App* command = Command("gcs-serve", "Run the GCS of a head, which starts it",
                                [this] { return RunGcs(gcs_serve_); });
    command->group("");
    command->add_option("--fd", gcs_serve_.fd, "Descriptor of the node")->required();
    command->add_option("--database", gcs_serve_.database, "Its file")->required();
    command->add_option("--log-dir", gcs_serve_.log_directory, "For gcs.log")->required();
    command->add_option("--address", gcs_serve_.address, "Of the node");
    command->add_option("--least-term", gcs_serve_.least_term, "The term is not below this");
    command->add_option("--keep-jobs", gcs_serve_.keep_jobs, "So many that have ended");
    command->add_flag("--log-json", gcs_serve_.log_json, "The log is JSON");
    command->add_flag("--must-exist", gcs_serve_.must_exist, "The database has to be there");
  }
  void AddCert() {
    CLI::App* command = app_.add_subcommand("cert", "Certificates for clusters that use TLS");
    command->require_subcommand(1);
    CLI::App* init = command->add_subcommand("init", "Make an authority and a node's certificate");
    init->callback([this] { run_ = [this] { return RunCertInit(cert_); }; });
    init->add_option("DIR", cert_.directory,
                     "Where they go; made if missing, nothing is overwritten")
        ->required();
    init->add_option("--host", cert_.hosts, "A name or address of a node; may be given again")
        ->type_name("HOST");
    CLI::App* node = command->add_subcommand("node", "Make another certificate for nodes");
    node->callback([this] { run_ = [this] { return RunCertNode(cert_); }; });
    node->add_option("DIR", cert_.directory,
                     "Where it goes; made if missing, nothing is overwritten")
        ->required();
    AddTyped(node, "--authority", cert_.authority, "DIR",
             "The directory with ca.pem and ca.key, as cert init made it")
        ->required();
    node->add_option("--host", cert_.hosts, "A name or address of a node; may be given again")
        ->type_name("HOST");
  }
  void AddStop() {
    CLI::App* command = Command("stop", "Stop the nodes of this user, with all their processes",
                                [this] { return RunStop(stop_); });
    AddQueryOptions(command, stop_.query);
    command->add_flag("--force", stop_.force, "Kill at once");
    command->footer(
        "\nA node that has not ended after --timeout is killed. Without --address, all nodes of "
        "this user end.\n");
  }
  void AddDrain() {
    CLI::App* command = Command("drain", "Let a node take no new work, so that it can be stopped",
                                [this] { return RunDrain(drain_); });
    command
        ->add_option("NODE", drain_.node,
                     "Its number, as sheaf list nodes prints it; self: the node that is asked")
        ->required()
        ->check(CLI::IsMember({kDrainSelf}) | CLI::Range(1u, UINT32_MAX));
    command
        ->add_option_function<double>(
            "--wait",
            [this](double seconds) { drain_.wait = static_cast<Nanos>(seconds * kSecond); },
            "Wait until no task, actor or driver runs there, for so long at most")
        ->check(CLI::Range(0.0, 1e6))
        ->type_name("SECONDS");
    AddQueryOptions(command, drain_.query);
    command->footer(
        "\nTasks that wait go to other nodes; tasks and actors that run there stay until they "
        "end.\nThere is no way back: stop the node, and start it anew.\n");
  }
  void AddSessions() {
    CLI::App* command = Command("sessions", "List nodes of this user that run here or have ended",
                                [this] { return RunSessions(sessions_, query_.json); });
    AddDirectory(command, sessions_);
    AddJson(command, query_);
    command->footer(
        "\nThe state of a head that has ended goes on with: sheaf start --head --resume=SESSION\n"
        "It goes away with: sheaf gcs remove SESSION\n");
  }
  void AddGcs() {
    gcs_state_.query.timeout = 600 * kSecond;
    CLI::App* command = app_.add_subcommand("gcs", "The state of a cluster, which its head keeps");
    command->require_subcommand(1);
    CLI::App* remove =
        command->add_subcommand("remove", "Remove the session of a node that has ended, for good");
    remove->callback([this] { run_ = [this] { return RunRemoveSession(sessions_); }; });
    remove->add_option("SESSION", sessions_.session, "As sheaf sessions prints it")
        ->required()
        ->type_name("DIR");
    CLI::App* backup = command->add_subcommand(
        "backup", "Copy the state of a running head to a file, while the head goes on");
    backup->callback([this] { run_ = [this] { return RunGcsBackup(gcs_state_); }; });
    backup->add_option("FILE", gcs_state_.file, "Where; it must not be there")->required();
    AddQueryOptions(backup, gcs_state_.query);
    CLI::App* restore = command->add_subcommand(
        "restore", "Make a session of such a copy, for sheaf start --head --resume");
    restore->callback([this] { run_ = [this] { return RunGcsRestore(gcs_state_); }; });
    restore->add_option("FILE", gcs_state_.file, "The copy")->required();
    AddJson(restore, gcs_state_.query);
    AddTyped(restore, "--dir", gcs_state_.directory, "DIR",
             "Where session directories are (default: as of sheaf start)");
    command->footer(
        "\nWhat a head acknowledged after the copy was made is not in it: nodes that joined since "
        "end\nand join anew, detached actors that were created since end.\n");
  }
  void AddDirectory(CLI::App* command, SessionsOptions& options) {
    AddTyped(command, "--dir", options.directory, "DIR",
             "Where session directories are (default: as of sheaf start)");
  }
  void AddDashboard() {
    CLI::App* command = Command("dashboard", "Serve the state of the cluster over HTTP",
                                [this] { return RunDashboard(dashboard_); });
    AddQueryOptions(command, dashboard_.query);
    AddTyped(command, "--host", dashboard_.host, "IP",
             "Address to listen on (default 127.0.0.1); beyond this machine the token is "
             "wanted, as sheaf token --http prints it");
    command->add_option("--port", dashboard_.port, "Port (default 8265, or the next that is free)")
        ->check(CLI::Range(0, 65535))
        ->type_name("PORT");
    AddTyped(command, "--token-file", dashboard_.token_file, "FILE",
             "The cluster's token (default: as of sheaf start)");
    AddTyped(command, "--tls-cert", dashboard_.tls_certificate, "FILE", "A certificate, in PEM");
    AddTyped(command, "--tls-key", dashboard_.tls_key, "FILE", "Its key");
    AddTyped(command, "--tls-client-ca", dashboard_.tls_client_authority, "FILE",
             "Who shows a certificate of this authority needs no token");
    command->add_flag("--read-only", dashboard_.read_only, "Let nobody change anything");
    command->add_flag("--writable", dashboard_.writable,
                      "Let browsers that logged in change something, too");
    command->add_option("--listener-fd", dashboard_.listener_fd, "A socket that listens already")
        ->group("");
    command->add_option("--metrics-fd", dashboard_.metrics_fd, "Where it counts")->group("");
    command->add_option("--idle-limit", dashboard_.idle_limit, "Seconds without a viewer")
        ->group("");
    command->add_flag("--log-json", dashboard_.log_json, "What it logs is JSON")->group("");
  }
  void AddToken() {
    CLI::App* command = Command("token", "Print the token that requests over HTTP carry",
                                [this] { return RunToken(dashboard_.token_file); });
    command->add_flag("--http", http_token_, "That token: the cluster's own is never shown")
        ->required();
    AddTyped(command, "--token-file", dashboard_.token_file, "FILE", "The cluster's token");
  }
  void AddStatus() {
    CLI::App* command = Command("status", "Show nodes, resources, demand and the object store",
                                [this] { return RunStatus(query_); });
    AddQueryOptions(command, query_);
  }
  void AddWhy() {
    CLI::App* command =
        Command("why", "Say in words why a task, actor or placement group is pending",
                [this] { return RunWhy(why_); });
    command->add_option("ID", why_.id, "32 hexadecimal digits, as list prints them")->required();
    AddQueryOptions(command, why_.query);
  }
  void AddMemory() {
    CLI::App* command = Command("memory", "Show the objects, the largest first, and who owns them",
                                [this] { return RunMemory(list_.query, list_.limit); });
    AddTyped(command, "--limit", list_.limit, "N", "Objects to show at most (default: all)");
    AddQueryOptions(command, list_.query);
  }
  // Becomes Python, with `first` and what follows the first word that is no option.
  CLI::App* AddPython(const char* name, const char* help, std::vector<std::string> first) {
    CLI::App* command = app_.add_subcommand(name, help);
    command->callback([this, command, first = std::move(first)] {
      run_program_.arguments = first;
      for (const std::string& word : command->remaining()) run_program_.arguments.push_back(word);
      run_ = [this] { return RunProgram(run_program_); };
    });
    command->prefix_command();
    return command;
  }
  void AddRun() {
    AddPython("job", "Submit, stop, delete or list jobs, or show their logs",
              {"-m", "sheaf.job_cli"})
        ->footer("\nExample: sheaf job submit --working-dir . -- python main.py\n");
    AddPython("ray", "Take Ray's command line", {"-m", "sheaf._ray.scripts.scripts"})
        ->set_help_flag();  // Its help is Python's.
    CLI::App* command = AddPython("run", "Run a Python program that uses Sheaf", {});
    command->add_flag("--as-ray", run_program_.as_ray,
                      "Let `import ray` mean sheaf, in its workers and children too");
    AddTyped(command, "--python", run_program_.python, "PROGRAM",
             "The Python to run (default: SHEAF_PYTHON, else python3)");
    command
        ->add_option(
            "--nproc", run_program_.processes,
            "Run it in N processes with RANK, WORLD_SIZE, MASTER_ADDR and so on as torchrun "
            "sets them; the first that fails ends all")
        ->type_name("N")
        ->check(CLI::Range(1, 1 << 16));
    command->footer(
        "\nExamples: sheaf run --as-ray train.py --epochs 3\n"
        "          sheaf run --nproc 4 train_ddp.py\n");
  }
  void AddVersion() {
    CLI::App* command =
        Command("version", "Print the version", [this] { return RunVersion(query_.json); });
    AddJson(command, query_);
  }
  void AddCompletion() {
    CLI::App* command =
        Command("completion", "Print a script that completes this command in a shell",
                [this] { return PrintCompletion(); });
    command->add_option("SHELL", shell_, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
    command->footer("\nExample: source <(sheaf completion bash)\n");
  }

  int PrintCompletion() {
    const std::vector<CommandWords> commands =
        WordsOf(app_, {{"list", ListedKinds()}, {"completion", {"bash", "zsh", "fish"}}});
    std::fputs(CompletionScript(shell_, commands).c_str(), stdout);
    return kDone;
  }

  CLI::App app_;
  std::function<int()> run_;
  StartOptions start_;
  CertOptions cert_;
  bool block_ = false;
  NodeOptions node_;
  StopOptions stop_;
  DrainOptions drain_;
  SessionsOptions sessions_;
  GcsFlags gcs_serve_;
  GcsStateOptions gcs_state_;
  DashboardFlags dashboard_;
  bool http_token_ = false;  // The one token that is shown.
  QueryOptions query_;
  ListOptions list_;
  LogsOptions logs_;
  KvOptions kv_;
  WhyOptions why_;
  RunOptions run_program_;
  ObserveCommands observe_;
  std::string shell_;
};

}  // namespace
}  // namespace sheaf::cli

int main(int argc, char** argv) {
  // A word of it is a user's text, of any form.
  if (argc > 1 && std::string_view(argv[1]) == "entrypoint-guard")
    return sheaf::RunEntrypointGuard({argv + 2, argv + argc});
  std::vector<char*> words = sheaf::cli::CalledAsRay(argc, argv);
  return sheaf::cli::CommandLine().Run(static_cast<int>(words.size()), words.data());
}
