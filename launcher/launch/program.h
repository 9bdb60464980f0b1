#pragma once
// Identifies a process's build of Lockstep.

#include <filesystem>
#include <string>

namespace lockstep::launch {

// The path of this process's program, with which ranks are started. Throws ConfigError if that file
// has been deleted or replaced.
std::string program_to_start();

// Checksums of the program and of Lockstep's libraries beside it, as one line of JSON: the same for
// the same build. running_build() describes what this process runs, even if its file has been
// replaced or deleted; only the libraries are read from their files.
std::string running_build();
std::string build_at(const std::filesystem::path& program);

// The difference between two builds, such as "the program is from another build"; empty if none can
// be found. `now` is empty if a process did not report its build, as old versions do not.
std::string difference_of_builds(const std::string& before, const std::string& now);

}  // namespace lockstep::launch
