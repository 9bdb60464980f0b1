#include "launcher/commands/train_options.h"

namespace lockstep {

void add_train_options(CommandSpec& command, TrainOptions& options) {
  add_common_options(command, options.common);
  command.add(
      "--resume",
      &options.resume,
      "auto: continue from the newest checkpoint of the run folder, if there is one; none: start a "
      "new run; or the path of a checkpoint",
      {.show_default = true});
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
      "before it, as on SIGUSR1 (train.walltime_minutes). Slurm's own limit counts too");
}

}  // namespace lockstep
