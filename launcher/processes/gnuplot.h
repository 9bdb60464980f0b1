#pragma once

#include <filesystem>
#include <string>

namespace lockstep::launcher {

// Runs gnuplot on `script`, in its folder; gnuplot's output goes to `log`. Returns a message for
// the user if gnuplot is missing or fails; empty if everything is drawn. Throws IoError.
std::string run_gnuplot(const std::filesystem::path& script, const std::filesystem::path& log);

}  // namespace lockstep::launcher
