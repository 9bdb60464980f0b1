#pragma once
// The config's text, as `launch` hands it to the ranks of every start. It travels through their
// agents' memory: no disk need have room for it, and no host need see the same file.

#include <memory>
#include <optional>
#include <string>

#include "runtime/base/file.h"

namespace lockstep::launch {

// A file in memory with this text, which the processes that this one starts inherit. Throws IoError.
std::unique_ptr<Descriptor> config_in_memory(const std::string& text);
// The variable, "NAME=VALUE", by which they find it.
std::string config_variable(const Descriptor& file);

// What was handed to this process; nothing if it was not started by `launch`. Throws ConfigError.
std::optional<std::string> handed_config();

}  // namespace lockstep::launch
