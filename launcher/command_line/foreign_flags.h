#pragma once
// Flags of other programs that no command has and no field of the config replaces.

#include <string>
#include <vector>

namespace lockstep::launcher {

struct ForeignFlags {
  std::vector<std::string> names;
  const char* remedy;  // {0}: the flag; {1}: its value, or N; {2}: the command
};

// Flags of launchers.
const std::vector<ForeignFlags>& launcher_flags();

// Flags of other trainers.
const std::vector<ForeignFlags>& trainer_flags();

}  // namespace lockstep::launcher
