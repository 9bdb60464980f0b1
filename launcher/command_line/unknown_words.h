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
  std::vector<std::string> names;
  const char* remedy;  // {0}: the flag; {1}: its value, or N; {2}: the command
};

// Flags of launchers.
const std::vector<ForeignFlags>& launcher_flags();

// Flags of other trainers.
const std::vector<ForeignFlags>& trainer_flags();

}  // namespace lockstep::launcher
