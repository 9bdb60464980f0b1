// lockstep launch -n N -- train CONFIG ...
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "collectives/agreement.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/results.h"
#include "launcher/commands/train_options.h"
#include "launcher/launch/agent.h"
#include "launcher/launch/progress.h"
#include "launcher/launch/restarts.h"
#include "launcher/launch/start.h"
#include "launcher/ranks/session.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"

namespace lockstep {
namespace {

struct LaunchOptions {
  int ranks = 0;
  std::string hostfile;
  std::string remote_shell = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15";
  int max_restarts = 10;
  bool allow_fewer = false;
  bool tag_output = false;
  std::string json;
  std::vector<std::string> train;
  bool agent = false;
};

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

// The same command, resumed from the newest checkpoint.
std::vector<std::string> resumed(const std::vector<std::string>& words) {
  std::vector<std::string> again;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--resume")
      ++i;  // and its value
    else if (!words[i].starts_with("--resume="))
      again.push_back(words[i]);
  }
  again.insert(again.end(), {"--resume", "auto"});
  return again;
}

launch::LaunchSetup setup_of(const LaunchOptions& options, const RunConfig& config) {
  launch::LaunchSetup setup{.program = std::filesystem::read_symlink("/proc/self/exe").string(),
                            .remote_shell = options.remote_shell,
                            .ranks = options.ranks,
                            .lanes = config.train.lanes,
                            .allow_fewer = options.allow_fewer};
  if (options.hostfile.empty())
    setup.hosts = {{"localhost", options.ranks}};
  else
    setup.hosts =
        read_host_slots(options.hostfile, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  int slots = 0;
  for (const HostSlots& host : setup.hosts) slots += host.slots;
  if (slots < options.ranks)
    throw ConfigError("-n: value is {}; allowed: up to {}, the slots in {}",
                      options.ranks,
                      slots,
                      options.hostfile);
  return setup;
}

// What all starts together came to.
struct Account {
  int starts = 0;
  int64_t steps_lost = 0;
  double seconds_lost = 0;
};

class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, const TrainOptions& train, const RunConfig& config)
      : options_(options),
        setup_(setup_of(options, config)),
        again_words_(resumed(options.train)),
        first_words_(train.resume == "none" ? again_words_ : options.train),
        progress_(config.output.run_dir),
        restarts_(options.max_restarts) {
    first_step_ = progress_.kept_step();
  }

  // The exit code of `launch`.
  int run() {
    int code = 0;
    while (true) {
      const launch::Decision decision = start();
      code = decision.code;
      if (!decision.again) break;
      const std::optional<double> pause = restarts_.next();
      if (!pause) {
        log_warn("launch: {} restarts in a row brought no new checkpoint: it ends here",
                 options_.max_restarts);
        code = static_cast<int>(ExitCode::kPeer);
        break;
      }
      log_warn("launch: starts again from step {} in {:g} s", progress_.kept_step(), *pause);
      signals_.wait(*pause);
      if (signals_.stop_requested()) {
        code = static_cast<int>(ExitCode::kPreempted);
        break;
      }
    }
    sum_up(code);
    return code;
  }

 private:
  launch::Decision start() {
    progress_.begin_start();
    launch::Output output(options_.tag_output);
    const launch::TrainWords& words = account_.starts == 0 ? first_words_ : again_words_;
    ++account_.starts;
    launch::StartEnd end = launch::Start(setup_, words, signals_, output).run();
    const auto run_end = progress_.end();
    end.done = run_end && run_end->done();
    const launch::Lost lost = end.done ? launch::Lost{} : progress_.lost(end);
    end.work_lost = lost.steps > 0;
    account_.steps_lost += lost.steps;
    account_.seconds_lost += lost.seconds;
    if (progress_.has_progressed()) restarts_.progress();
    const launch::Decision decision = decide(end);
    if (decision.again || end.work_lost) tell_failure(end, lost, output.errors());
    return decision;
  }

  void tell_failure(const launch::StartEnd& end,
                    const launch::Lost& lost,
                    const std::string& said) {
    for (const std::string& words : progress_.last_words(end)) log_warn("launch: {}", words);
    try {
      const std::filesystem::path kept = progress_.keep_post_mortem(end, lost, said);
      log_warn("launch: start {} lost {} step{} ({:.1f} s); its records are in {}",
               account_.starts,
               lost.steps,
               lost.steps == 1 ? "" : "s",
               lost.seconds,
               kept.string());
    } catch (const IoError& error) {
      log_warn("launch: start {} lost {} steps; its records cannot be kept: {}",
               account_.starts,
               lost.steps,
               error.what());
    }
  }

  void sum_up(int code) {
    const double wall = (now_ms() - began_ms_) / 1000,
                 kept = progress_.seconds_of_steps_after(first_step_);
    const double share = wall > 0 ? kept / wall : 0;
    log_info(
        "launch: {} start{}, {} restart{}, {} step{} lost ({:.1f} s); steps that were kept took "
        "{:.1f} of {:.1f} s ({:.1f}%)",
        account_.starts,
        account_.starts == 1 ? "" : "s",
        account_.starts - 1,
        account_.starts == 2 ? "" : "s",
        account_.steps_lost,
        account_.steps_lost == 1 ? "" : "s",
        account_.seconds_lost,
        kept,
        wall,
        100 * share);
    if (options_.json.empty()) return;
    const Json json = Json::object({{"exit_code", code},
                                    {"starts", account_.starts},
                                    {"restarts", account_.starts - 1},
                                    {"steps_lost", account_.steps_lost},
                                    {"seconds_lost", account_.seconds_lost},
                                    {"seconds_kept", kept},
                                    {"seconds", wall},
                                    {"effective", share}});
    write_file_atomically(options_.json, json.dump({.indent = 2}) + "\n");
  }

  const LaunchOptions& options_;
  const double began_ms_ = now_ms();
  const launch::LaunchSetup setup_;
  const launch::TrainWords again_words_, first_words_;
  launch::StopSignals signals_;
  launch::Progress progress_;
  launch::Restarts restarts_;
  Account account_;
  int64_t first_step_ = 0;
};

ExitCode run_launch(Session& session, const LaunchOptions& options) {
  if (options.agent) return static_cast<ExitCode>(launch::run_agent());
  const int ranks = session.communicator().size();
  if (ranks > 1 || !session.library().empty())
    throw AgreedError(ExitCode::kUsage,
                      fmt::format("launch: started as {} rank{} of a run; allowed: alone, without "
                                  "mpirun, srun or WORLD_SIZE, since it starts the ranks itself",
                                  ranks,
                                  ranks == 1 ? "" : "s"));
  init_log("info", 0, 1);
  if (options.ranks < 1) throw ConfigError("launch: -n is missing: how many ranks to start");
  check_result_path("--json", options.json);
  const TrainOptions train = parse_train(options.train);
  const RunConfig config = read_config(train.common);
  return static_cast<ExitCode>(Supervisor(options, train, config).run());
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
  command.add("--allow-fewer",
              &options->allow_fewer,
              "Where hosts do not answer, go on with fewer ranks: the same bits, more slowly");
  command.add("--tag-output", &options->tag_output, "Begin each line with its rank");
  command.add("--json", &options->json, "Write what all starts came to to this file as JSON");
  command.add("--agent", &options->agent, "What launch itself starts on each host");
  command.footer =
      "A rank that dies, a host that is lost: the others end, and all start again from the newest\n"
      "good checkpoint, after 1, 2, 4, ... 60 s. Exit codes 2-5 and 7 of a rank end it with the\n"
      "same code. SIGUSR1, SIGTERM, SIGINT, SIGHUP: each rank saves once, and it ends with 75; a\n"
      "second SIGINT kills. RUN_DIR/starts/NNNN keeps the flight recorders of a start that failed\n"
      "and what it said. The folder, program and data have the same path on all hosts.";
  command.run = [options](Session& session) { return run_launch(session, *options); };
  return command;
}

}  // namespace lockstep
