#pragma once
// What a word that is no command, flag or argument is likely to mean. Names are compared with the
// command's flags, with those that other programs use for them, and with the fields of the config.

#include <string>
#include <vector>

#include "launcher/command_line/command_line.h"

namespace lockstep::launcher {

// The command that the first words choose.
struct ChosenCommand {
  const CommandSpec* command;
  std::string path;  // "data inspect"; empty for the program itself
  size_t words = 0;  // how many words name it
};

ChosenCommand choose_command(const CommandSpec& program, const std::vector<std::string>& words);

// The command's option of this name, or null.
const OptionSpec* find_option(const CommandSpec& command, const std::string& name);

// A word of a command line, and what surrounds it.
struct WordInPlace {
  const CommandSpec& program;
  const ChosenCommand& chosen;
  const std::vector<std::string>& words;
  size_t at;                                  // its index
  const std::vector<std::string>& arguments;  // before it, such as CONFIG
};

// "unknown flag --epochs; did you mean --set train.epochs=3?"
std::string unknown_flag(const WordInPlace& place);

// The message about an argument that the command does not take.
std::string surplus_argument(const WordInPlace& place);

// The message about words that name no command, where one must follow.
std::string unknown_command(const CommandSpec& program,
                            const ChosenCommand& chosen,
                            const std::vector<std::string>& words);

// Flags of other programs that no command has and no field of the config replaces.
struct ForeignFlags {
  const char* names;   // separated by blanks
  const char* remedy;  // {0}: the flag; {1}: its value, or N; {2}: the command
};

extern const std::vector<ForeignFlags> kLauncherFlags;
extern const std::vector<ForeignFlags> kTrainerFlags;  // of other trainers

}  // namespace lockstep::launcher
