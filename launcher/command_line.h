#pragma once
// What the command line may say, as plain data. A command is a CommandSpec, and each of its flags
// one line: command.add("--name", &options->field, "what it does", {.rule = ...}). Only
// command_line.cc knows the library that parses.

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/error.h"

namespace lockstep {

class Session;

// What main() runs once the command line is parsed: the command on this rank.
using Command = std::function<ExitCode(Session&)>;

// The values that an option allows.
struct AnyValue {};

struct OneOf {
  std::vector<std::string> words;
};

struct WholeNumbers {
  int64_t low, high;
};

// Whole numbers without an upper bound.
struct AtLeast {
  int64_t minimum;
};

// Numbers with a fraction, and not NaN.
struct Between {
  double low, high;
};

using AllowedValues = std::variant<AnyValue, OneOf, WholeNumbers, AtLeast, Between>;

// Where the value of an option goes. What is there before is the default. A bool is set by a flag
// without a value; a vector takes several values.
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
  bool with_commas = false;      // values may be one word: 1,2,3
  bool with_units = false;       // values may end in KiB, MiB, ...; kB counts as KiB
  bool one_each_time = false;    // the option is repeated for each value
  AllowedValues allowed = {};    // of each value
  std::string environment = {};  // variable that gives the value where the command line does not
  bool per_rank = false;         // ranks of a run may be given other values
};

struct OptionSpec {
  std::string name;  // "--name", or without dashes for an argument that is known by its place
  OptionTarget target;
  std::string help;
  OptionRules rules;
};

struct CommandSpec {
  std::string name;
  std::string help;
  std::string footer = {};  // empty: that of the command above
  std::vector<OptionSpec> options = {};
  std::vector<CommandSpec> subcommands = {};  // where there are any, exactly one must follow
  Command run = nullptr;                      // owns what the options point to

  void add(const std::string& option_name,
           OptionTarget target,
           const std::string& option_help,
           const OptionRules& rules = {});
};

struct GivenOption {
  std::string name, value;
};

// What a command line asks for: a command, or, where it is wrong, an error to tell.
struct ParsedCommandLine {
  Command command;
  std::string name;                // of the command: "bench ops"
  std::vector<GivenOption> given;  // options in which ranks must not differ, as they are given
  std::string usage_error;
};

// Stores the values of the options of the subcommand that is chosen. --help and --version print and
// end the process.
ParsedCommandLine parse_command_line(const CommandSpec& program,
                                     const std::string& version,
                                     int argc,
                                     char** argv);

}  // namespace lockstep
