#pragma once
// The report's figures as pictures, drawn by gnuplot.

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/scale/report_text.h"

namespace lockstep::scale {

// A script for gnuplot that holds its data and draws NAME.svg and NAME.png in the current folder.
struct Plot {
  std::string name;
  std::string script;
};

// Throughput against ideal, efficiency, and lost time by its parts.
std::vector<Plot> make_plots(const Report& report);

// Writes each NAME.gp to `folder` and has gnuplot draw it there; what it complains of goes to the
// folder runs/ there. Returns what to tell the user: that there is no gnuplot, or that it failed;
// empty when all is drawn. Throws IoError.
std::string draw(const std::vector<Plot>& plots, const std::filesystem::path& folder);

}  // namespace lockstep::scale
