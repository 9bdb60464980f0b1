#pragma once
// Draws the report's figures with gnuplot.

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/scale/report_text.h"

namespace lockstep::scale {

// A gnuplot script that contains its data and draws NAME.svg and NAME.png in the current folder.
struct Plot {
  std::string name;
  std::string script;
};

// Throughput against ideal, efficiency, and lost time by part.
std::vector<Plot> make_plots(const Report& report);

// Writes each NAME.gp to `folder` and runs gnuplot there; gnuplot's output goes to the folder runs/
// in it. Returns a message for the user if gnuplot is missing or fails; empty if everything is
// drawn. Throws IoError.
std::string draw(const std::vector<Plot>& plots, const std::filesystem::path& folder);

}  // namespace lockstep::scale
