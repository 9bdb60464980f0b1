#pragma once
// From the times of runs to what scaling costs: pure arithmetic.
//
// A step of a rank is the sum of its parts: computing, waiting for data, waiting for other ranks
// (which is exchange, or slower ranks), the optimizer's update and gather, and what is left, the
// gaps between these. A world's steps are those of the rank with the least own work, since its
// waits tell all that the others cost it. Ideally a step takes as long as on the smallest world
// (weak), or that divided by the growth in ranks (strong). What it takes beyond that is lost; each
// part's share of the loss is by how much it exceeds the same part of the ideal step, so that the
// shares add up to the whole. A share below zero is a gain.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "launcher/scale/runs.h"

namespace lockstep::scale {

// The parts of a step, ms.
enum class Part { kExchange, kStragglers, kDataWait, kOptimizer, kGaps, kCompute };
constexpr size_t kParts = 6;
constexpr std::array<Part, kParts> kAllParts{Part::kExchange,
                                             Part::kStragglers,
                                             Part::kDataWait,
                                             Part::kOptimizer,
                                             Part::kGaps,
                                             Part::kCompute};
using Parts = std::array<double, kParts>;

// As a loss: "exposed communication", ...; and as a name in JSON and CSV: "exchange", ...
const char* title_of(Part part);
const char* key_of(Part part);

inline double& at(Parts& parts, Part part) { return parts[static_cast<size_t>(part)]; }
inline double at(const Parts& parts, Part part) { return parts[static_cast<size_t>(part)]; }
double sum(const Parts& parts);

// A step of a rank, cut up; the parts add up to step_ms.
Parts parts_of(const RankTimes& times);

// A rank that the others wait for.
struct Straggler {
  int rank = 0;
  std::string host;
  double excess_ms = 0;  // of own work over the fastest rank's
  Part in = Part::kCompute;
  double in_ms = 0;    // the most of that excess
  bool always = true;  // false: too little to explain the waits; ranks take turns in being slow
};

// One world size in one mode.
struct ScaleRow {
  World world;
  std::string binding;
  bool oversubscribed = false;
  size_t repeats = 0;
  double counted_s = 0;  // what the shortest of them measured
  int hosts = 1;
  ExchangeSizes exchange;
  double other_cpus = 0;  // mean of the repeats
  // Medians; of an even number of repeats the mean of the middle two.
  double step_ms = 0, samples_per_s = 0;
  double fastest_ms = 0, slowest_ms = 0;  // of the repeats
  Parts parts{};
  double ideal_samples_per_s = 0, efficiency = 0, ideal_step_ms = 0, lost_ms = 0;
  Parts lost{};
  std::optional<Straggler> straggler;  // where waits for slower ranks are more than 2% of a step
  std::string verdict;                 // where most is lost and what to do: one sentence
};

// The runs of one mode, any number of each world size; rows by world size. Not empty.
std::vector<ScaleRow> make_rows(const std::vector<MeasuredRun>& runs);

// Whether the weights came out equal where they must: in TREE order, over all of a mode's strong
// runs, and over the repeats of each world size of its weak ones.
struct HashCheck {
  bool checked = false;  // there was something to compare
  bool equal = true;
  std::string statement;
};
HashCheck check_hashes(const std::vector<MeasuredRun>& runs, bool tree_order);

}  // namespace lockstep::scale
