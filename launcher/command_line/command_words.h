#pragma once
// Checks the words of a command line against its grammar: commands, flags, their values, and
// arguments. What is wrong is described in the words of the grammar, with a remedy; the parsing
// library would describe it in its own, or accept it.

#include <string>
#include <vector>

#include "launcher/command_line/command_line.h"

namespace lockstep::launcher {

// The words with `help`, `help train`, `version` and `-V` as --help and --version.
std::vector<std::string> with_usual_requests(const CommandSpec& program,
                                             std::vector<std::string> words);

// The command that describes the flags of the chosen command: "lockstep train --help".
std::string help_of(const CommandSpec& program, const std::vector<std::string>& words);

// Returns what is wrong; empty if nothing is, or if help is requested. Does not check values of
// options.
std::string usage_error(const CommandSpec& program, const std::vector<std::string>& words);

}  // namespace lockstep::launcher
