#pragma once
// Computes what scaling costs from the times of runs. Pure arithmetic.
//
// A rank's step is the sum of its parts: computing, waiting for data, waiting for other ranks (for
// their messages, or for slower ranks), the optimizer's update and gather, and the gaps between
// these. A world's step is that of the rank with the least work of its own, since its waits include
// everything that the others cost it.
//
// The ideal step takes as long as on the smallest world (weak scaling), or that time divided by the
// growth in ranks (strong scaling). The time beyond that is lost. Each part's share of the loss is
// its excess over the same part of the ideal step, so that the shares add up to the loss. A
// negative share is a gain.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "launcher/scale/measured_run.h"

namespace lockstep::scale {

// The parts of a step, in ms.
enum class Part { kExchange, kStragglers, kDataWait, kOptimizer, kGaps, kCompute };
constexpr size_t kParts = 6;
constexpr std::array<Part, kParts> kAllParts{Part::kExchange,
                                             Part::kStragglers,
                                             Part::kDataWait,
                                             Part::kOptimizer,
                                             Part::kGaps,
                                             Part::kCompute};
using Parts = std::array<double, kParts>;

// The title of a part as a loss, such as "exposed communication", and its name in JSON and CSV,
// such as "exchange".
const char* title_of(Part part);
const char* key_of(Part part);

inline double& at(Parts& parts, Part part) { return parts[static_cast<size_t>(part)]; }
inline double at(const Parts& parts, Part part) { return parts[static_cast<size_t>(part)]; }
double sum(const Parts& parts);

// Splits a rank's step into its parts, which add up to step_ms.
Parts parts_of(const train::RankTimes& times);

// A rank that the others wait for.
struct Straggler {
  int rank = 0;
  std::string host;
  double excess_ms = 0;  // its own work beyond the fastest rank's
  Part in = Part::kCompute;
  double in_ms = 0;    // the part with most of that excess
  bool always = true;  // false: different ranks are slow at different times
};

// One world size in one mode.
struct ScaleRow {
  World world;
  std::string binding;
  bool oversubscribed = false;
  size_t repeats = 0;
  double counted_s = 0;  // time that the shortest repeat measured
  int hosts = 1;
  ExchangeSizes exchange;
  double other_cpus = 0;  // mean over the repeats
  // Medians over the repeats; if their number is even, the mean of the middle two.
  double step_ms = 0, samples_per_s = 0;
  double fastest_ms = 0, slowest_ms = 0;  // over the repeats
  Parts parts{};
  double joules_per_step = -1;  // median over the repeats that know it; negative: none does
  double predicted_low_ms = 0, predicted_high_ms = 0;  // of a step; 0: there is no forecast

  double predicted_ms() const { return (predicted_low_ms + predicted_high_ms) / 2; }
  double ideal_samples_per_s = 0, efficiency = 0, ideal_step_ms = 0, lost_ms = 0;
  Parts lost{};
  std::optional<Straggler> straggler;  // if waits for slower ranks exceed 2% of a step
  std::string diagnosis;               // where most time is lost and what to do: one sentence
};

// One row for each world size, in ascending order, from the runs of one mode with any number of
// repeats. `runs` must not be empty.
std::vector<ScaleRow> make_rows(const std::vector<MeasuredRun>& runs);

// Whether the weights are equal if they must be, in TREE order: after all runs of strong scaling,
// and after all repeats of one world size in weak scaling.
struct HashCheck {
  bool checked = false;  // there was something to compare
  bool equal = true;
  std::string statement;
};
HashCheck compare_hashes(const std::vector<MeasuredRun>& runs, bool tree_order);

// Explains where most of a world's time is lost and what to do about it: one sentence, without the
// full stop. For the smallest world: what its own step waits for.
std::string diagnose(const ScaleRow& row, bool smallest);

// The sum of the positive parts, to which shares of the loss refer.
double lost_altogether(const Parts& lost);

}  // namespace lockstep::scale
