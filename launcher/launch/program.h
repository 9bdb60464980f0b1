#pragma once
// Which build of Lockstep a process is.

#include <filesystem>
#include <string>

namespace lockstep::launch {

// The path of this process's program, under which ranks are started. Throws ConfigError if that was
// deleted or replaced since.
std::string program_to_start();

// Checksums of the program and of the libraries of ours beside it, in one line of JSON: the same
// for the same build. running_build(): of what this process runs, even if its file was replaced or
// deleted since; only its libraries are read from their files.
std::string running_build();
std::string build_at(const std::filesystem::path& program);

// What differs between two builds, as "the program is of another build"; empty: nothing that could be
// read. `now` is empty if a process did not tell its build, as earlier ones do not.
std::string difference_of_builds(const std::string& before, const std::string& now);

}  // namespace lockstep::launch
