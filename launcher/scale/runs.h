#pragma once
// One measured run: `lockstep train` on a world of ranks, and what it says of itself.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "launcher/scale/start.h"
#include "runtime/base/json.h"
#include "runtime/train/folder/run_times.h"

namespace lockstep::scale {

// Weak: the batch grows with the ranks. Strong: it stays.
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

// What the worlds of a measurement have in common.
struct RunSetup {
  Launcher launcher;
  Processors here;
  int threads = 1;                     // a rank
  std::vector<std::string> arguments;  // of `lockstep train`: config, --set, --data, --device
  int64_t steps = 0;                   // of a run, the first ones included
  double limit_s = 0;                  // for a run
  std::filesystem::path folder;        // for the runs' folders, results and logs
};

// What a step of a world exchanges.
struct ExchangeSizes {
  int64_t buckets = 0;
  int64_t largest_bucket_bytes = 0;  // of its gradients
  bool shares_memory = false;        // the ranks of a host
  int64_t host_sends_bytes = 0;      // over the network; 0: nothing, or not known
};

// What a run measured: the time of the steps that count, s; and how much of it is enough to tell a
// slow rank from chance.
constexpr double kEnough_s = 2;
inline double counted_s(const RankTimes& times) {
  return static_cast<double>(times.steps) * times.step_ms / 1000;
}

struct MeasuredRun {
  World world;
  int repeat = 0;
  std::string weights_hash;
  std::string transport;         // "shared memory and tcp"; empty of one rank
  std::vector<RankTimes> ranks;  // by rank
  ExchangeSizes exchange;
  double other_cpus = 0;  // of this host, that other work took; 0 also where ranks are elsewhere
  std::vector<std::string> command;
  std::string binding;
  bool oversubscribed = false;
  Json environment;  // the run's environment.json
};

// Fills in weights_hash, transport, ranks and exchange from the JSON that `lockstep train --json`
// writes.
// Throws JsonError where it lacks them.
void read_result(const Json& result, MeasuredRun& run);

// Of a run's log, what tells why it failed: the program's own words where there are some, else the
// last lines.
std::string why_failed(const std::string& log);

// Runs a world to the end, in a folder of its own that is removed first: an earlier run's
// checkpoints would be in the way. Throws Interrupted; an Error with the run's exit code, where it
// is one of ours, and why it failed.
MeasuredRun run_world(const RunSetup& setup, const World& world, int repeat);

}  // namespace lockstep::scale
