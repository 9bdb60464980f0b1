#pragma once
// The command line's grammar, as plain data. A command is a CommandSpec, and each of its flags is
// one line: command.add("--name", &options->field, "what it does", {.rule = ...}). Only
// command_line.cc knows the parsing library.

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/error.h"

namespace lockstep::launcher {

class Session;

// What main() runs on this rank once the command line is parsed.
using Command = std::function<ExitCode(Session&)>;

// The values that an option allows.
struct AnyValue {};

struct OneOf {
  std::vector<std::string> words;
};

struct WholeNumbers {
  int64_t low, high;
};

// Whole numbers without an upper limit.
struct AtLeast {
  int64_t minimum;
};

// Real numbers; not NaN.
struct Between {
  double low, high;
};

using AllowedValues = std::variant<AnyValue, OneOf, WholeNumbers, AtLeast, Between>;

// Where an option's value is stored. The value there before parsing is the default. A bool is set
// by a flag without a value; a vector takes several values.
using OptionTarget = std::variant<bool*,
                                  int*,
                                  int64_t*,
                                  uint64_t*,
                                  double*,
                                  std::string*,
                                  std::vector<int32_t>*,
                                  std::vector<int64_t>*,
                                  std::vector<std::string>*>;

struct OptionRules {
  bool required = false;
  bool show_default = false;     // in --help
  bool with_commas = false;      // several values may be given in one word: 1,2,3
  bool with_units = false;       // values may end in KiB, MiB, ...; kB counts as KiB
  bool one_each_time = false;    // the option is repeated for each value
  AllowedValues allowed = {};    // of each value
  std::string environment = {};  // variable with the value if the command line has none
  bool per_rank = false;         // may differ between the ranks of a run
  bool may_be_empty = false;     // an empty text is a value
  // Names of the option in other programs, separated by blanks, for hints in errors: "data_dir";
  // with a value of this option that the name stands for: "gpu=cuda".
  std::string also = {};
};

struct OptionSpec {
  std::string name;  // "--name"; without dashes for a positional argument
  OptionTarget target;
  std::string help;
  OptionRules rules;
};

struct CommandSpec {
  std::string name;
  std::string help;
  std::string footer = {};  // empty: the footer of the command above
  std::vector<OptionSpec> options = {};
  std::vector<CommandSpec> subcommands = {};  // if there are any, exactly one must follow
  Command run = nullptr;                      // owns the targets of the options
  std::string also = {};                      // names of the command in other programs
  std::string passes_to = {};                 // the command that follows "--", such as train
  // Runs although this process cannot join its run; Session::why_apart() has the reason.
  bool runs_apart = false;

  void add(const std::string& option_name,
           OptionTarget target,
           const std::string& option_help,
           const OptionRules& rules = {});
};

struct GivenOption {
  std::string name, value;
};

// The result of parsing: a command or, if the command line is wrong, an error.
struct ParsedCommandLine {
  Command command;
  std::string name;                // of the command: "bench ops"
  std::vector<GivenOption> given;  // options that must be the same on all ranks, as given
  bool runs_apart = false;         // as in CommandSpec
  std::string usage_error;
};

// Parses the command line and stores the values of the chosen command's options. --help and
// --version, also as `help` and `version`, print their text and end the process.
ParsedCommandLine parse_command_line(const CommandSpec& program,
                                     const std::string& version,
                                     int argc,
                                     char** argv);

}  // namespace lockstep::launcher
