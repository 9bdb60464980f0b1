#pragma once
// The config's text, as `launch` passes it to the ranks of every start. It travels through the
// agents' memory, so that no disk needs room for it and hosts need not see the same file.

#include <memory>
#include <optional>
#include <string>

#include "runtime/base/file.h"

namespace lockstep::launcher {

// Makes a file in memory with this text, which child processes inherit. Throws IoError.
std::unique_ptr<Descriptor> config_in_memory(const std::string& text);
// The variable, "NAME=VALUE", by which they find it.
std::string config_variable(const Descriptor& file);

// The text passed to this process; nullopt if `launch` did not start it. Throws ConfigError.
std::optional<std::string> handed_config();

}  // namespace lockstep::launcher
