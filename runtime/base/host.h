#pragma once
// Identifies this machine and this program.

#include <filesystem>
#include <string>

namespace lockstep {

// This machine's name, as gethostname() gives it.
std::string host_name();

// A text that differs between two machines even if their names are equal: the name and the boot id.
// Containers on one machine count as separate machines unless they share its name.
std::string host_identity();

// The path of this program's executable. Without /proc, the path with which it was started.
std::filesystem::path program_path();

}  // namespace lockstep
