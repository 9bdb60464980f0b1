// How a launched run stays alive:
//
//   Supervisor::run()  repeats  start() = begin_generation(), Start::run(), evaluate_end()
//
//   launch ---- agent of host A ---- rank 0, rank 1      Start::run() starts the agents (ssh), has
//          \--- agent of host B ---- rank 2, rank 3      them start the ranks, and watches
//
// evaluate_end() looks up in the run folder what the start has achieved (Progress::complete) and
// asks decide() (restarts.h), which turns the ranks' exit codes into "again" or an exit code.
// Before it starts again, HostHealth may leave out a host that failed repeatedly, FirstSteps ends
// the run if a rank never reaches its first step, and Restarts sets the pause: 1, 2, 4, ... 60 s,
// with a limit of restarts without a new checkpoint.
//
// Invariants. (1) Each start takes the next generation number in the run folder first, and only
// ranks of the newest generation publish checkpoints: ranks on a host that was given up may still
// run, but cannot overwrite anything. (2) All starts use the config text that was read first and,
// unless --allow-program-change is given, the same build, so that the bits stay the same. (3) A
// disk must not hang this process: it could be neither interrupted nor killed. So
// begin_generation() and folder_answers() look at the folder in a child process with a time limit
// (in_child), before anything here reads it. If the folder does not answer, the state of the run is
// unknown, and the start is repeated.
#include "launcher/launch/supervisor.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "collectives/tcp/rendezvous_info.h"
#include "launcher/command_line/results.h"
#include "launcher/launch/output.h"
#include "launcher/launch/program.h"
#include "launcher/processes/in_child.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/log.h"
#include "runtime/base/passing_error.h"
#include "runtime/base/text.h"
#include "runtime/base/time.h"
#include "runtime/metrics/progress.h"

namespace lockstep::launch {
namespace {

constexpr double kPatienceSeconds = 10;  // for a disk

// The same command, resuming from the newest checkpoint.
TrainWords resumed(const TrainWords& words) {
  TrainWords again;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--resume")
      ++i;  // skips its value too
    else if (!words[i].starts_with("--resume="))
      again.push_back(words[i]);
  }
  again.insert(again.end(), {"--resume", "auto"});
  return again;
}

std::vector<launcher::HostSlots> hosts_of(const LaunchOptions& options) {
  if (options.hostfile.empty()) return {{"localhost", options.ranks}};
  std::vector<launcher::HostSlots> hosts =
      launcher::read_host_slots(options.hostfile, options.slots);
  int slots = 0;
  for (const launcher::HostSlots& host : hosts) slots += host.slots;
  if (slots < options.ranks)
    throw ConfigError("-n: value is {}; allowed: up to {}, the slots in {}",
                      options.ranks,
                      slots,
                      options.hostfile);
  return hosts;
}

LaunchSetup setup_of(const LaunchOptions& options,
                     const std::string& config_text,
                     const RunConfig& config) {
  return {.program = program_to_start(),
          .remote_shell = options.remote_shell,
          .ranks = options.ranks,
          .rank_per_domain = options.rank_per_domain,
          .allow_fewer = options.allow_fewer,
          // A tenth longer than the limit of the ranks' own watchdogs.
          .blocked_s = 1.1 * config.comm.files_timeout_s,
          .config = config_text};
}

GivenFiles files_of(const LaunchOptions& options,
                    const launcher::TrainOptions& train,
                    const RunConfig& config) {
  GivenFiles files;
  files.add(train.common.config,
            "the config",
            "this run keeps its first text; for the new one, end launch and start it again");
  if (!options.hostfile.empty())
    files.add(options.hostfile,
              "--hostfile",
              "this run keeps its hosts; for the new ones, end launch and start it again");
  files.add_named_in(config);
  return files;
}

// The last lines of a text, at most `lines`.
std::string last_lines(const std::string& text, int lines) {
  size_t begin = text.empty() ? 0 : text.size() - 1;
  while (begin > 0 && (text[begin - 1] != '\n' || --lines > 0)) --begin;
  return text.substr(begin);
}

}  // namespace

Supervisor::Supervisor(const LaunchOptions& options,
                       const launcher::TrainOptions& train,
                       const std::string& config_text,
                       const RunConfig& config)
    : options_(options),
      began_ms_(now_ms()),
      hosts_(hosts_of(options)),
      setup_(setup_of(options, config_text, config)),
      build_(running_build()),
      again_words_(resumed(options.train)),
      first_words_(train.resume == "none" ? again_words_ : options.train),
      run_dir_(config.output.run_dir),
      generation_{.number = 0, .launch = fmt::format("{:016x}", collectives::random_nonce())},
      progress_(run_dir_),
      restarts_(options.max_restarts),
      health_(hosts_, {options.ranks, options.allow_fewer}),
      files_(files_of(options, train, config)) {
  if (!options.allow_program_change) setup_.build = build_;
}

int Supervisor::run() {
  int code = 0;
  while (true) {
    const Decision decision = start();
    code = decision.code;
    if (!decision.again) break;
    const std::optional<double> pause = restarts_.next();
    if (!pause) {
      log_warn("launch: gives up after {} restarts in a row without a new checkpoint",
               options_.max_restarts);
      break;
    }
    if (folder_answers_)
      log_warn("launch: starts again from step {} in {:g} s", progress_.kept_step(), *pause);
    else
      log_warn("launch: tries again in {:g} s", *pause);
    signals_.wait(*pause);
    if (signals_.stop_requested()) {
      code = static_cast<int>(ExitCode::kPreempted);
      break;
    }
    report_changes();
    if (!is_same_program()) {
      code = static_cast<int>(ExitCode::kUsage);
      break;
    }
  }
  code = sum_up(code);
  return code == 0 && !Output::is_written() ? static_cast<int>(ExitCode::kCheckpoint) : code;
}

// Looks at the files in a child process, as a disk may not answer.
void Supervisor::report_changes() {
  const auto states =
      launcher::in_child([&] { return files_.states(); }, kPatienceSeconds, signals_);
  if (!states) {
    log_warn("launch: a file that the config names does not answer within {:g} s",
             kPatienceSeconds);
    return;
  }
  for (const std::string& change : files_.changes(*states)) log_warn("launch: {}", change);
}

// Whether the program's file is still the build that this process runs; true if the disk does not
// answer. Logs a change.
bool Supervisor::is_same_program() {
  const std::string deleted = "deleted";
  const auto look = [&] {
    std::error_code error;
    const bool there = std::filesystem::exists(setup_.program, error) || error;
    return there ? build_at(setup_.program) : deleted;
  };
  const std::string now = launcher::in_child(look, kPatienceSeconds, signals_).value_or(build_);
  if (now == deleted) {
    if (options_.allow_program_change) return true;  // it may be back by then
    log_warn(
        "launch: the program '{}' was deleted, so that its ranks cannot be started again; put "
        "it back and run the same command",
        setup_.program);
    return false;
  }
  const std::string difference = difference_of_builds(build_, now);
  if (difference.empty()) return true;
  if (!options_.allow_program_change) {
    log_warn(
        "launch: '{}' was replaced: {}; it might compute other bits. The ranks are not started "
        "again: put the build back and run the same command, or add --allow-program-change",
        setup_.program,
        difference);
    return false;
  }
  log_warn(
      "launch: '{}' was replaced: {}; the ranks continue with it, because "
      "--allow-program-change is set",
      setup_.program,
      difference);
  build_ = now;  // reported once
  return true;
}

bool Supervisor::folder_answers() {
  const auto look = [&] { return std::string(is_folder(run_dir_) ? "there" : "not there"); };
  folder_answers_ = launcher::in_child(look, kPatienceSeconds, signals_).has_value();
  if (!folder_answers_) report_silent_folder();
  return folder_answers_;
}

void Supervisor::report_silent_folder() const {
  log_warn(
      "launch: run folder '{}' does not answer within {:g} s", run_dir_.string(), kPatienceSeconds);
}

// Takes the next generation number, so that earlier starts publish nothing any more. Returns false
// if the run folder does not answer.
bool Supervisor::begin_generation() {
  const train::RunGeneration newest = generation_;
  ++generation_.number;
  try {
    const auto number = launcher::in_child(
        [&] { return std::to_string(train::next_generation(run_dir_, newest).number); },
        kPatienceSeconds,
        signals_);
    if (number) generation_.number = std::stoll(*number);
    folder_answers_ = number.has_value();
    if (!number) report_silent_folder();
  } catch (const Error& error) {
    // The start continues: rank 0 raises the number itself, or reports the same error.
    folder_answers_ = true;
    if (account_.starts > 0) log_warn("launch: {}", error.what());
  }
  return folder_answers_;
}

Decision Supervisor::start() {
  if (!begin_generation())
    return {.again = !signals_.stop_requested(), .code = static_cast<int>(ExitCode::kPeer)};
  progress_.begin_start();
  if (account_.starts == 0) first_step_ = progress_.kept_step();
  Output output(options_.tag_output, metrics::terminal_columns(STDERR_FILENO));
  const TrainWords& words = account_.starts == 0 ? first_words_ : again_words_;
  ++account_.starts;
  LaunchSetup setup = setup_;
  setup.hosts = health_.present(now_ms() / 1000);
  const double start_ms = now_ms();
  StartEnd end;
  try {
    end = Start(setup, words, generation_, records_, signals_, output).run();
    // A host that is left out for a pause will return.
    if (setup.hosts.size() < hosts_.size()) end.too_few_left = false;
  } catch (const IoError& error) {  // no process or descriptor is available for an agent
    if (!may_pass(error.error_number())) throw;
    log_warn("launch: {}", error.what());
    end.trouble = {error.what()};
    end.stop_requested = signals_.stop_requested();
  }
  return evaluate_end(end, (now_ms() - start_ms) / 1000, output.errors());
}

Decision Supervisor::evaluate_end(StartEnd& end, double lasted_s, const std::string& rank_errors) {
  const double now_s = now_ms() / 1000;
  const bool all_known =
      std::ranges::all_of(end.ranks, [](const RankEnd& rank) { return rank.code.has_value(); });
  // A rank may have ended because the folder does not answer; then its work is unknown.
  if (!(all_known ? folder_answers() : begin_generation())) {
    end.work_lost = true;
    return decide(end);
  }
  progress_.complete(end);
  end.drained = health_.drained(end, now_s);
  const Lost lost = end.done ? Lost{} : progress_.lost(end);
  end.work_lost = lost.steps > 0;
  account_.steps_lost += lost.steps;
  account_.seconds_lost += lost.seconds;
  if (progress_.is_ours(end)) {
    account_.seconds_kept = progress_.seconds_of_steps_after(first_step_);
    if (progress_.has_progressed()) restarts_.progress();
  }
  Decision decision = decide(end);
  const bool saved = decision.again && decision.code == static_cast<int>(ExitCode::kPreempted);
  if ((decision.again && !saved) || end.work_lost) report_failure(end, lost, rank_errors);
  if (!end.other_build.empty())
    log_warn(
        "launch: {}; all hosts must have the program that launch runs; or add "
        "--allow-program-change",
        end.other_build);
  if (!decision.again) return decision;
  const HostHealth::Notes notes = health_.note(end, lasted_s, now_s);
  for (const std::string& line : notes.lines) log_warn("launch: {}", line);
  if (notes.left_out) first_steps_.forget();
  // If a long start has left nothing in the run folder, this host may not see the folder of the
  // ranks.
  constexpr double kShortSeconds = 60;
  const bool known = progress_.is_ours(end) || lasted_s < kShortSeconds;
  const std::optional<RankEnd> rank = known ? first_steps_.note(end) : std::nullopt;
  if (rank) {
    report_last_output(*rank, rank_errors);
    const bool internal = rank->code == static_cast<int>(ExitCode::kInternal);
    return {.code = static_cast<int>(internal ? ExitCode::kInternal : ExitCode::kPeer)};
  }
  return decision;
}

void Supervisor::report_last_output(const RankEnd& rank, const std::string& rank_errors) const {
  constexpr int kLines = 10;
  StartEnd alone;
  alone.ranks = {rank};
  const std::vector<std::string> words = progress_.failure_lines(alone);
  log_warn(
      "launch: rank {} failed in {} starts in a row in which no rank made a step: another start "
      "would not help. {}; the newest lines of the ranks:",
      rank.rank,
      FirstSteps::kStarts,
      words.empty() ? text_of(rank) : words.front());
  std::istringstream lines(last_lines(rank_errors, kLines));
  for (std::string line; std::getline(lines, line);) log_warn("launch:   {}", line);
}

void Supervisor::report_failure(const StartEnd& end,
                                const Lost& lost,
                                const std::string& rank_errors) {
  for (const std::string& words : progress_.failure_lines(end)) log_warn("launch: {}", words);
  try {
    const std::filesystem::path kept = progress_.keep_post_mortem(end, lost, rank_errors);
    log_warn("launch: start {} lost {} ({:.1f} s); its records are in {}",
             account_.starts,
             counted(lost.steps, "step"),
             lost.seconds,
             kept.string());
  } catch (const std::exception& error) {
    log_warn("launch: start {} lost {}; its records cannot be kept: {}",
             account_.starts,
             counted(lost.steps, "step"),
             error.what());
  }
}

// Returns the exit code, which is not 0 if --json cannot be written.
int Supervisor::sum_up(int code) const {
  const double wall = (now_ms() - began_ms_) / 1000, kept = account_.seconds_kept;
  const double share = wall > 0 ? kept / wall : 0;
  log_info(
      "launch: {}, {}, {} lost ({:.1f} s); steps that were kept took {:.1f} of {:.1f} s ({:.1f}%)",
      counted(account_.starts, "start"),
      counted(account_.starts - 1, "restart"),
      counted(account_.steps_lost, "step"),
      account_.seconds_lost,
      kept,
      wall,
      100 * share);
  if (options_.json.empty()) return code;
  const Json json = Json::object({{"exit_code", code},
                                  {"starts", account_.starts},
                                  {"restarts", account_.starts - 1},
                                  {"steps_lost", account_.steps_lost},
                                  {"seconds_lost", account_.seconds_lost},
                                  {"seconds_kept", kept},
                                  {"seconds", wall},
                                  {"effective", share}});
  try {
    launcher::write_json(options_.json, json);
  } catch (const IoError& error) {
    log_warn("launch: --json: {}", error.what());
    if (code == 0) return static_cast<int>(error.code());
  }
  return code;
}

}  // namespace lockstep::launch
