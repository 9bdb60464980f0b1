#include "launcher/command_line/train_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "launcher/command_line/config_source.h"
#include "launcher/command_line/handed_config.h"
#include "runtime/base/error.h"
#include "runtime/config/field_search.h"

namespace lockstep::launcher {

std::string decide_start(TrainOptions& options) {
  CommonOptions& common = options.common;
  const bool decides = options.resume.empty();
  if (decides) options.resume = "none";
  if (handed_config()) return "";  // launch has decided
  const ConfigPlace place = find_config(common.config);
  if (decides && place.run_folder.empty() && !place.checkpoint.empty())
    throw ConfigError(
        "CONFIG '{0}' is a checkpoint; to continue its run, give the run folder; to start another "
        "run from this checkpoint, add --resume {0} --run-dir DIR; for a new run with its config, "
        "--resume none --run-dir DIR",
        common.config);
  if (place.run_folder.empty() || !common.run_dir.empty()) return "";
  common.run_dir = place.run_folder;
  if (!decides) return "";
  options.resume = "auto";
  return fmt::format(
      "'{}' is a run folder: its run continues there (--resume auto); --run-dir DIR would start "
      "another run with its config",
      common.config);
}

void check_train_options(const TrainOptions& options) {
  const std::string word = config::plain_flag(options.resume);
  const auto is_one_of = [&](std::initializer_list<const char*> words) {
    return std::ranges::find(words, word) != words.end();
  };
  if (options.resume == "auto" || options.resume == "none") return;
  const char* hint = nullptr;
  if (is_one_of({"auto", "yes", "true", "1", "on", "latest", "last", "newest", "y"})) hint = "auto";
  if (is_one_of({"none", "no", "false", "0", "off", "never", "n"})) hint = "none";
  std::error_code error;
  if (hint == nullptr || std::filesystem::exists(options.resume, error)) return;
  throw ConfigError(
      "--resume: value is '{}'; did you mean '{}'? allowed: auto, none, or the path of a "
      "checkpoint",
      options.resume,
      hint);
}

void add_train_options(CommandSpec& command, TrainOptions& options) {
  add_common_options(command, options.common);
  command.add(
      "--resume",
      &options.resume,
      "auto: continue from the newest checkpoint of the run folder, if there is one; none: start a "
      "new run; or the path of a checkpoint. By default none or, if CONFIG is a run folder, auto",
      {.also = "resume_from_checkpoint resume_from ckpt_path load restart continue "
               "checkpoint ckpt load_checkpoint auto_resume=auto"});
  command.add(
      "--allow-change",
      &options.allowed_changes,
      "With --resume: accept that this field, or the fields of this section, differ from the "
      "checkpoint's; can be repeated",
      {.one_each_time = true});
  command.add(
      "--max-steps",
      &options.max_steps,
      "Stop at this step, counted from the beginning of the run (the schedule's length stays)",
      {.allowed = AtLeast{0}});
  command.add(
      "--walltime",
      &options.walltime,
      "Time limit of the run, from its start: 90m, 2.5h, 12:00:00. The run stops early enough "
      "before it, as on SIGUSR1 (train.walltime_minutes). Slurm's own limit counts too",
      {.also = "time time_limit max_time"});
  add_on_option(command, options.on);
}

void add_on_option(CommandSpec& command, std::string& on) {
  command.add("--on",
              &on,
              "Hardware for a forecast of the run's time, which is kept beside the measured one: a "
              "name, or a file of `lockstep doctor --calibrate`. By default that of a known GPU",
              {.environment = "LOCKSTEP_HARDWARE", .per_rank = true});
}

}  // namespace lockstep::launcher
