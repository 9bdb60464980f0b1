#pragma once
// What a run folder records of its run, read while the run goes on, after its end, or after it was
// killed.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launcher/run/metrics_file.h"
#include "runtime/base/json.h"
#include "runtime/config/run_config.h"

namespace lockstep::launcher {

// A start of `lockstep launch` that has failed: RUN_DIR/starts/NNNN.
struct FailedStart {
  int number = 0;
  std::string reason;  // "rank 1 on node1: exit code 137"; may be empty
  int64_t steps_lost = 0;
  double seconds_lost = 0;
};

enum class RunState { kRunning, kEnded, kStopped };

struct RunHistory {
  // Reads the folder. Throws CheckpointError if it is not a run folder, and IoError.
  explicit RunHistory(const std::filesystem::path& run_folder);
  // Reads what has changed since. Throws IoError.
  void update();

  // kEnded: end.json is there. kRunning: a process holds the folder. kStopped: neither, for example
  // because the run was killed.
  RunState state() const;
  // "done: step 3750 of 3750", "running: step 12 of 3750, process 4711 on node1", "stopped without
  // an end: ...".
  std::string state_text() const;
  int64_t steps() const;     // of the whole run; 0: unknown
  std::string name() const;  // the config's or, if unknown, the folder's
  double seconds() const;    // sum of all steps' times

  std::filesystem::path folder;
  MetricsFile metrics;
  // null: missing or damaged
  Json environment, end;
  std::string config_text;           // empty: missing
  std::optional<RunConfig> config;   // if it can be read
  std::string config_problem;        // why it cannot
  std::string writer;                // "process 4711 on node1, since ..."; empty: nobody writes
  std::vector<int64_t> checkpoints;  // steps
  std::optional<int64_t> best_checkpoint;
  std::vector<FailedStart> failed_starts;
};

// Whether the folder has anything that only a run folder has.
bool is_run_folder(const std::filesystem::path& folder);

}  // namespace lockstep::launcher
