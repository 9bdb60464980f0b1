// lockstep launch -n N -- train CONFIG ...
#include <fmt/core.h>

#include <memory>

#include "collectives/agreement.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/results.h"
#include "launcher/commands/train_options.h"
#include "launcher/launch/agent.h"
#include "launcher/launch/supervisor.h"
#include "launcher/ranks/session.h"
#include "runtime/base/log.h"
#include "runtime/base/streams.h"
#include "runtime/config/parse.h"

namespace lockstep {
namespace {

using launch::LaunchOptions;

// The command after `--`, as `train` itself would read it.
TrainOptions parse_train(const std::vector<std::string>& words) {
  TrainOptions options;
  CommandSpec train{.name = "train", .help = "What each rank runs"};
  add_train_options(train, options);
  std::vector<std::string> copy = words;
  copy.insert(copy.begin(), "lockstep");
  std::vector<char*> pointers;
  for (std::string& word : copy) pointers.push_back(word.data());
  const ParsedCommandLine parsed =
      parse_command_line({.name = "lockstep", .help = "", .subcommands = {train}},
                         "",
                         static_cast<int>(pointers.size()),
                         pointers.data());
  if (!parsed.usage_error.empty())
    throw ConfigError("launch: after -- {} (see lockstep train --help)", parsed.usage_error);
  return options;
}

ExitCode run_launch(Session& session, const LaunchOptions& options) {
  if (options.agent) return static_cast<ExitCode>(launch::run_agent(options.given_up));
  const int ranks = session.communicator().size();
  if (ranks > 1 || !session.library().empty())
    throw AgreedError(ExitCode::kUsage,
                      fmt::format("launch: started as {} rank{} of a run; allowed: alone, without "
                                  "mpirun, srun or WORLD_SIZE, since it starts the ranks itself",
                                  ranks,
                                  ranks == 1 ? "" : "s"));
  init_log("info", 0, 1);
  log_in_background();  // it watches ranks
  if (options.ranks < 1) throw ConfigError("launch: -n is missing: how many ranks to start");
  check_result_path("--json", options.json);
  queue_results();
  const TrainOptions train = parse_train(options.train);
  const std::string text = read_config_text(train.common.config);
  const RunConfig config = read_config(train.common, text);
  return static_cast<ExitCode>(launch::Supervisor(options, train, text, config).run());
}

}  // namespace

CommandSpec launch_command() {
  auto options = std::make_shared<LaunchOptions>();
  CommandSpec command{.name = "launch",
                      .help = "Start the ranks of a training, and start them again where one dies"};
  command.add("TRAIN",
              &options->train,
              "-- train CONFIG ...: what each rank runs. --resume is auto where it is not given");
  command.add("-n", &options->ranks, "Ranks", {.allowed = AtLeast{1}});
  command.add("--hostfile",
              &options->hostfile,
              "Lines HOST slots=N: where the ranks go; without it all run on this host");
  command.add("--rsh",
              &options->remote_shell,
              "What runs a command on another host, given its name and the command",
              {.show_default = true});
  command.add("--max-restarts",
              &options->max_restarts,
              "Restarts in a row without a new checkpoint, after which it ends",
              {.show_default = true, .allowed = AtLeast{0}});
  command.add(
      "--allow-fewer",
      &options->allow_fewer,
      "If hosts do not answer, fail again and again or are drained, go on with fewer ranks: "
      "the same bits, more slowly");
  command.add("--allow-program-change",
              &options->allow_program_change,
              "Start the ranks again even if the program is of another build by then");
  command.add("--tag-output", &options->tag_output, "Begin each line with its rank");
  command.add("--json", &options->json, "Write what all starts came to to this file as JSON");
  command.add("--agent", &options->agent, "What launch itself starts on each host");
  command.add("--given-up", &options->given_up, "With --agent: processes that could not be killed");
  command.footer =
      "A rank that dies, a host that is lost: the others end, and all start again from the newest\n"
      "good checkpoint, after 1, 2, 4, ... 60 s, with the config's text of the first start. Exit\n"
      "codes 2-5 and 7 of a rank end it with the same code, but not those of a disk that is full or\n"
      "does not answer. SIGUSR1, SIGTERM, SIGINT, SIGHUP: each rank saves once, and it ends with 75;\n"
      "a second SIGINT kills. RUN_DIR/starts/NNNN keeps the flight recorders of a start that failed\n"
      "and what it said. The folder, program and data have the same path on all hosts.";
  command.run = [options](Session& session) { return run_launch(session, *options); };
  return command;
}

}  // namespace lockstep
