#pragma once
// The commands. Each file here, scale/scale.cc and launch/launch.cc make one, with its subcommands.

#include "launcher/command_line.h"

namespace lockstep {

CommandSpec train_command();
CommandSpec replay_command();
CommandSpec eval_command();
CommandSpec predict_command();
CommandSpec generate_command();
CommandSpec sample_command();
CommandSpec plan_command();
CommandSpec scale_command();
CommandSpec selftest_command();
CommandSpec bench_command();
CommandSpec bench_collectives_command();
CommandSpec inspect_command();
CommandSpec import_command();
CommandSpec export_command();
CommandSpec data_command();
CommandSpec config_command();
CommandSpec launch_command();

}  // namespace lockstep
