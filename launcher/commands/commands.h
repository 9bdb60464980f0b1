#pragma once
// The commands. Each file here makes one; plan has its flags and its table in files of their own.

#include "launcher/command_line/command_line.h"

namespace lockstep::launcher {

CommandSpec train_command();
CommandSpec replay_command();
CommandSpec eval_command();
CommandSpec predict_command();
CommandSpec generate_command();
CommandSpec sample_command();
CommandSpec plan_command();
CommandSpec launch_command();
CommandSpec scale_command();
CommandSpec report_command();
CommandSpec selftest_command();
CommandSpec doctor_command();
CommandSpec bench_command();
CommandSpec inspect_command();
CommandSpec watch_command();
CommandSpec import_command();
CommandSpec export_command();
CommandSpec data_command();
CommandSpec config_command();

// In the order of --help.
inline constexpr CommandSpec (*kCommands[])() = {train_command,
                                                 replay_command,
                                                 eval_command,
                                                 predict_command,
                                                 generate_command,
                                                 sample_command,
                                                 plan_command,
                                                 launch_command,
                                                 scale_command,
                                                 report_command,
                                                 selftest_command,
                                                 doctor_command,
                                                 bench_command,
                                                 inspect_command,
                                                 watch_command,
                                                 import_command,
                                                 export_command,
                                                 data_command,
                                                 config_command};

// Subcommands of bench and data.
CommandSpec bench_collectives_command();
CommandSpec data_pack_command();
CommandSpec data_inspect_command();
CommandSpec data_bench_command();
CommandSpec data_tokenize_command();

}  // namespace lockstep::launcher
