#include "launcher/processes/gnuplot.h"

#include <fmt/core.h>

#include "launcher/processes/run_process.h"

namespace lockstep::launcher {

std::string run_gnuplot(const std::filesystem::path& script, const std::filesystem::path& log) {
  constexpr double kLimit_s = 120;
  const std::string gnuplot = find_program("gnuplot");
  if (gnuplot.empty())
    return "no plots: gnuplot is not installed (Debian: apt-get install gnuplot-nox)";
  const std::string name = script.filename().string();
  const std::filesystem::path folder = script.has_parent_path() ? script.parent_path() : ".";
  const ProcessEnd end = run_process({gnuplot, name}, log, kLimit_s, folder);
  if (end.exit_code == 0) return "";
  return fmt::format(
      "gnuplot failed on {} with exit code {}: see {}", name, end.exit_code, log.string());
}

}  // namespace lockstep::launcher
