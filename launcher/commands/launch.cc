// lockstep launch -n N -- train CONFIG ...
#include <fmt/core.h>

#include <memory>

#include "collectives/agree/agreement.h"
#include "launcher/command_line/config_source.h"
#include "launcher/command_line/results.h"
#include "launcher/command_line/train_options.h"
#include "launcher/commands/commands.h"
#include "launcher/launch/agent.h"
#include "launcher/launch/supervisor.h"
#include "launcher/ranks/devices.h"
#include "launcher/ranks/domain_ranks.h"
#include "launcher/ranks/hostfile.h"
#include "launcher/ranks/session.h"
#include "launcher/run/resumed_run.h"
#include "runtime/base/log.h"
#include "runtime/base/streams.h"
#include "runtime/base/text.h"
#include "runtime/config/parse.h"
#include "runtime/run/lanes.h"

namespace lockstep::launcher {
namespace {

using launch::LaunchOptions;

// Parses the command after `--` as `train` itself would.
TrainOptions parse_train(const std::vector<std::string>& words) {
  TrainOptions options;
  CommandSpec train{.name = "train", .help = "What each rank runs"};
  add_train_options(train, options);
  constexpr const char* kUsage = "lockstep launch -n N -- train CONFIG ...";
  if (words.empty())
    throw ConfigError("launch: the command of the ranks is missing; usage: {}", kUsage);
  if (words[0] != "train")
    throw ConfigError(
        "launch: the command of the ranks is '{}'; allowed: train; usage: {}", words[0], kUsage);
  std::vector<std::string> copy = words;
  copy.insert(copy.begin(), "lockstep");
  std::vector<char*> pointers;
  for (std::string& word : copy) pointers.push_back(word.data());
  const ParsedCommandLine parsed =
      parse_command_line({.name = "lockstep", .help = "", .subcommands = {train}},
                         "",
                         static_cast<int>(pointers.size()),
                         pointers.data());
  if (!parsed.usage_error.empty()) throw ConfigError("launch: after --: {}", parsed.usage_error);
  return options;
}

// Without -n: one rank for each NUMA domain of the hosts, of which those without a number of slots
// are taken to be like this one.
void choose_ranks(LaunchOptions& options, const TrainOptions& train) {
  if (ops_to_plan_for(train.common).separate_memory)
    throw ConfigError(
        "launch: -n is required: the number of ranks to start; it has a default only on CPUs");
  const DomainRanks domains = plan_domain_ranks(find_cpu_domains(), find_cpu_limits());
  options.rank_per_domain = true;
  options.slots = static_cast<int>(domains.ranks.size());
  options.ranks = options.slots;
  if (!options.hostfile.empty()) {
    options.ranks = 0;
    for (const HostSlots& host : read_host_slots(options.hostfile, options.slots))
      options.ranks += host.slots;
  }
  log_info("launch: {}, because -n is not given and this host has {}",
           counted(options.ranks, "rank"),
           domains.reason);
}

ExitCode run_launch(Session& session, LaunchOptions options) {
  if (options.agent) return static_cast<ExitCode>(launch::run_agent(options.given_up));
  const int ranks = session.communicator().size();
  if (ranks > 1 || !session.library().empty())
    throw collectives::AgreedError(
        ExitCode::kUsage,
        fmt::format("launch: started as {} rank{} of a run; start it alone, without "
                    "mpirun, srun or WORLD_SIZE, because it starts the ranks itself",
                    ranks,
                    plural(ranks)));
  init_log("info", 0, 1);
  log_in_background();  // as it must keep watching the ranks
  require_result_path("--json", options.json);
  queue_results();
  TrainOptions train = parse_train(options.train);
  const bool has_run_dir = !train.common.run_dir.empty(), has_resume = !train.resume.empty();
  const std::string line = decide_start(train);
  if (!has_resume) train.resume = "none";  // which means auto here
  if (!line.empty()) log_info("{}", line);
  check_train_options(train);
  if (options.ranks == 0) choose_ranks(options, train);
  const ConfigText found = read_config_at(train.common.config);
  if (!has_run_dir && !train.common.run_dir.empty())
    options.train.insert(options.train.end(), {"--run-dir", train.common.run_dir});
  train.common.config = found.origin;
  init_log("warn", 0, 1);  // rank 0 logs what it finds
  const run::OpenedConfig given = read_config_of(found.text, train.common);
  init_log("info", 0, 1);
  const std::string resume = train.resume == "none" ? "auto" : train.resume;
  int64_t recorded = 0;
  if (given.config.train.lanes == 0) recorded = resumed_choices(resume, given.config).lanes;
  const RunConfig config = run::choose_lanes(given, recorded).opened.config;
  config::validate_for_ranks(config, options.ranks);
  return static_cast<ExitCode>(launch::Supervisor(options, train, found.text, config).run());
}

}  // namespace

CommandSpec launch_command() {
  auto options = std::make_shared<LaunchOptions>();
  CommandSpec command{.name = "launch",
                      .help = "Start the ranks of a training run, and restart them if one dies",
                      .also = "torchrun mpirun spawn distributed",
                      .passes_to = "train"};
  command.add("TRAIN",
              &options->train,
              "-- train CONFIG ...: the command of each rank; --resume is auto by default");
  command.add("-n",
              &options->ranks,
              "Number of ranks; on CPUs by default one for each NUMA domain, bound to its CPUs",
              {.allowed = AtLeast{1},
               .also = "np nproc nproc_per_node num_processes world_size gpus num_gpus ranks n"});
  command.add("--hostfile",
              &options->hostfile,
              "File of lines HOST slots=N, for the ranks; by default all run on this host",
              {.also = "hosts machinefile host"});
  command.add("--rsh",
              &options->remote_shell,
              "Program that runs a command on another host, given its name and the command",
              {.show_default = true});
  command.add("--max-restarts",
              &options->max_restarts,
              "Limit of restarts in a row without a new checkpoint",
              {.show_default = true, .allowed = AtLeast{0}, .also = "restarts retries"});
  command.add("--allow-fewer",
              &options->allow_fewer,
              "If hosts do not answer, fail repeatedly or are drained, continue with fewer ranks: "
              "the same bits, more slowly");
  command.add("--allow-program-change",
              &options->allow_program_change,
              "Restart the ranks even if the program has been replaced by another build");
  command.add("--tag-output", &options->tag_output, "Begin each line with its rank");
  command.add("--json", &options->json, "Write a summary of all starts to this file as JSON");
  command.add("--agent", &options->agent, "Used by launch itself: run as the agent of a host");
  command.add("--given-up", &options->given_up, "With --agent: processes that could not be killed");
  command.footer =
      "If a rank dies or a host is lost, the other ranks end, and all start again from the newest\n"
      "good checkpoint, after 1, 2, 4, ... 60 s, with the config as the first start has read it.\n"
      "Exit codes 2-5 and 7 of a rank end launch with the same code, unless the cause is a disk\n"
      "that is full or does not answer. On SIGUSR1, SIGTERM, SIGINT or SIGHUP each rank saves\n"
      "once, and launch ends with 75; a second SIGINT kills the ranks. RUN_DIR/starts/NNNN keeps\n"
      "the flight recorders and the output of a start that failed. The folder, the program and "
      "the\n"
      "data must have the same path on all hosts.";
  command.run = [options](Session& session) { return run_launch(session, *options); };
  return command;
}

}  // namespace lockstep::launcher
