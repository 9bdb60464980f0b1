#pragma once
// The flags of `plan`.

#include <string>
#include <vector>

#include "launcher/forecast/compare.h"
#include "launcher/forecast/planned_run.h"

namespace lockstep::launcher {

struct PlanCommandOptions {
  CommonOptions common;
  int ranks = 0;
  int ranks_per_node = 0;
  bool activations = false;
  std::string on;            // --on: the hardware to plan for
  std::string gpu;           // --gpu: the same
  std::string network;       // --network: a link or its Gbit/s
  forecast::RunTerms terms;  // --price, --watts, ...
  bool explain = false;
  bool advise = false;
  std::string validate;  // --validate: rows of published figures
  std::string replay;    // --replay: the timeline of a measured run
  std::string from;      // --from: its hardware
  std::string sweep;     // --sweep: numbers of ranks
  std::vector<std::string> compare;
  std::string plot;                // --plot: a picture of --sweep or --compare
  forecast::Limits limits;         // --budget; deadline_s is not set
  std::string walltime, deadline;  // durations
  forecast::Purchase purchase;
  double host_memory_gib = 0;  // --host-memory; 0: this host's or, with --on, not compared
};

// The hardware that the options name; empty: none.
const std::string& hardware_name(const PlanCommandOptions& options);
// `world`: the ranks to plan for by default.
PlanRequest request_of(const PlanCommandOptions& options, int world);
forecast::Limits limits_of(const PlanCommandOptions& options);
// Whether several kinds or numbers of devices are to be compared.
bool is_comparison(const PlanCommandOptions& options);

void add_plan_options(CommandSpec& command, PlanCommandOptions& options);

}  // namespace lockstep::launcher
