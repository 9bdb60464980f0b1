#pragma once
// Which machine this is.

#include <filesystem>
#include <string>

namespace lockstep {

// This machine's name, as gethostname() gives it.
std::string host_name();

// What tells two machines apart even where their names are equal: the name and the boot. Containers
// of one machine count as machines of their own, unless they share its name.
std::string host_identity();

// The file of this program; without /proc the one that it was started as.
std::filesystem::path program_path();

}  // namespace lockstep
