#pragma once
// The same run on several kinds and numbers of devices: `lockstep plan --sweep`, `--compare` and
// `--budget`.

#include <optional>
#include <string>
#include <vector>

#include "launcher/forecast/chart.h"
#include "launcher/forecast/planned_run.h"
#include "runtime/base/json.h"

namespace lockstep::forecast {

// Hardware and a number of ranks: "8xH100" is {"H100", 8}. A name without a number has one rank.
struct Candidate {
  std::string on;
  int ranks = 1;
};
Candidate candidate_of(const std::string& text);
std::string name_of(const Candidate& candidate);  // "8 x H100"

// What a run takes there; without a forecast, `why_not` has the reason.
struct CandidateRun {
  Candidate candidate;
  std::optional<Forecast> forecast;
  bool fits = false;
  std::string set;  // what it needs beside the config: "train.lanes=16"
  std::string why_not;
};

// `request`: as it is, but for hardware and ranks. If there are more ranks than lanes, the run has
// as many lanes as ranks.
CandidateRun run_on(launcher::PlanRequest request, const Candidate& candidate);

// "ranks=1..1024": the powers of two between, and both ends; or "ranks=1,2,6". Throws ConfigError.
std::vector<int> sweep_of(const std::string& text);

// The share of its ranks' time that is used, if `first` used all of it.
double efficiency_of(const CandidateRun& run, const CandidateRun& first);
// Prints time, efficiency and cost for each number of ranks.
void print_sweep(const std::vector<CandidateRun>& runs, Json& json);
// Prints time, cost and energy of an epoch and of the run on each hardware, and which is the
// cheapest and the fastest.
void print_comparison(const std::vector<CandidateRun>& runs, Json& json);

// The same as pictures (compare_chart.cc). Throws ConfigError if there is nothing to draw.
Chart sweep_chart(const std::vector<CandidateRun>& runs);
Chart comparison_chart(const std::vector<CandidateRun>& runs);

// What the user may spend.
struct Limits {
  double budget_usd = 0;  // 0: no limit
  double deadline_s = 0;
};
// Known hardware with a price, in numbers up to 512 devices.
std::vector<Candidate> rentable();
// Prints the cheapest and the fastest of those within the limits.
void print_within(const std::vector<CandidateRun>& runs, const Limits& limits, Json& json);

// Buying a node instead of renting it.
struct Purchase {
  double usd = 0;             // of a node
  double hours_a_day = 8;     // in use
  double usd_per_kwh = 0.15;  // of its power
};
// Prints after how many months the purchase has cost less than the rent.
void print_purchase(const CandidateRun& run, const Purchase& purchase, Json& json);

}  // namespace lockstep::forecast
