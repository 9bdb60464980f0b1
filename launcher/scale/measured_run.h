#pragma once
// One measured run: `lockstep train` on a world of ranks, and its reported times.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "launcher/scale/start.h"
#include "runtime/base/json.h"
#include "runtime/train/folder/run_times.h"

namespace lockstep::scale {

// Weak: the batch grows with the ranks. Strong: it stays the same.
enum class Mode { kWeak, kStrong };

// "weak", "strong".
const char* name_of(Mode mode);

// A world of ranks and the batch that it trains on.
struct World {
  Mode mode = Mode::kStrong;
  int ranks = 1;
  int64_t global_batch = 0;
  int64_t lanes = 0;
};

// What all worlds of a measurement have in common.
struct RunSetup {
  Launcher launcher;
  Processors here;
  int threads = 1;                     // for each rank
  std::vector<std::string> arguments;  // of `lockstep train`: config, --set, --data, --device
  int64_t steps = 0;                   // of a run, including the first ones
  double limit_s = 0;                  // for a run
  std::filesystem::path folder;        // for the runs' folders, results and logs
};

// Sizes of what a world exchanges in a step.
struct ExchangeSizes {
  int64_t buckets = 0;
  int64_t largest_bucket_bytes = 0;  // of its gradients
  bool shares_memory = false;        // between ranks of a host
  int64_t host_sends_bytes = 0;      // over the network; 0: nothing, or unknown
};

// Seconds of counted steps that are enough to tell a slow rank from chance.
constexpr double kEnough_s = 2;
inline double counted_s(const train::RankTimes& times) {
  return static_cast<double>(times.steps) * times.step_ms / 1000;
}

struct MeasuredRun {
  World world;
  int repeat = 0;
  std::string weights_hash;
  std::string transport;                // "shared memory and tcp"; empty for one rank
  std::vector<train::RankTimes> ranks;  // by rank
  ExchangeSizes exchange;
  double joules_per_step = -1;                         // mean of its steps; negative: not readable
  std::string energy_sources, energy_not_readable;     // see train::EnergyReport
  double predicted_low_ms = 0, predicted_high_ms = 0;  // of a step; 0: no forecast
  double other_cpus = 0;  // CPUs of this host used by other work; 0 also if ranks run elsewhere
  std::vector<std::string> command;
  std::string binding;
  bool oversubscribed = false;
  Json environment;  // the run's environment.json
};

// Fills in weights_hash, transport, ranks, exchange, energy and forecast from the JSON that
// `lockstep train --json` writes. Throws JsonError if something is missing.
void read_result(const Json& result, MeasuredRun& run);

// The lines of a run's log that explain why it failed: Lockstep's own messages if there are any,
// otherwise the last lines.
std::string why_failed(const std::string& log);

// Runs a world to its end, in its own folder, which is removed first: checkpoints of an earlier run
// would be in the way. Throws Interrupted, or an Error with the reason and, if it is one of
// Lockstep's, the run's exit code.
MeasuredRun run_world(const RunSetup& setup, const World& world, int repeat);

// Seconds that these CPUs have worked since the boot, from the text of /proc/stat, including time
// that a hypervisor gave to other machines. Negative if the text has none of these CPUs.
double busy_cpu_seconds(const std::string& stat,
                        const std::vector<int>& cpus,
                        double ticks_per_second);

// The CPU time on this host that is not used by this process and its children.
class OtherWork {
 public:
  // Starts the measurement on `cpus`, those that this process may use.
  explicit OtherWork(std::vector<int> cpus);
  // The average number of CPUs used by other work since then. All children started since must have
  // ended.
  double cpus() const;

 private:
  std::vector<int> cpus_;
  double start_ms_, busy_s_, own_s_;
};

}  // namespace lockstep::scale
