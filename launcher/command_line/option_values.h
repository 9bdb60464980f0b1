#pragma once
// Checks the value of an option, as text, against its type and what the option allows.

#include <string>

#include "launcher/command_line/command_line.h"

namespace lockstep::launcher {

// Returns "value is 'tpu'; allowed: auto, cpu, cuda" if `text` is not a value of the option;
// otherwise empty, and `text` becomes a form that the parsing library reads as the same value:
// whole numbers are decimal, 64KiB is 65536.
std::string value_problem(const OptionSpec& option, std::string& text);

// The allowed values for --help: "{auto,cpu,cuda}", ">=1".
std::string allowed_in_help(const OptionSpec& option);

// The allowed values in words: "auto, cpu, cuda"; "a whole number, 1 or more".
std::string allowed_in_words(const OptionSpec& option);

}  // namespace lockstep::launcher
