#pragma once
// Starts a run's ranks, and starts them again until the run is complete, a stop is requested, or
// another start would not help.

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "launcher/command_line/train_options.h"
#include "launcher/launch/first_steps.h"
#include "launcher/launch/given_files.h"
#include "launcher/launch/host_health.h"
#include "launcher/launch/progress.h"
#include "launcher/launch/restarts.h"
#include "launcher/launch/start.h"
#include "runtime/train/folder/run_generation.h"

namespace lockstep::launch {

// The flags of `launch`.
struct LaunchOptions {
  int ranks = 0;
  bool rank_per_domain = false;  // `ranks` is one for each NUMA domain of the hosts
  std::string hostfile;
  // The slots of a host for which hostfile has no number: as many as this host has CPUs.
  int slots = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  std::string remote_shell = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15";
  int max_restarts = 10;
  bool allow_fewer = false;
  bool allow_program_change = false;
  bool tag_output = false;
  std::string json;
  std::vector<std::string> train;  // the command that each rank runs
  bool agent = false;
  std::string given_up;  // with `agent`: processes that could not be killed
};

class Supervisor {
 public:
  // `train`, `config_text` and `config` are the parsed command, the config's text and the parsed
  // config. Throws ConfigError.
  Supervisor(const LaunchOptions& options,
             const launcher::TrainOptions& train,
             const std::string& config_text,
             const RunConfig& config);

  // Returns the exit code of `launch`.
  int run();

 private:
  // Totals of all starts.
  struct Account {
    int starts = 0;
    int64_t steps_lost = 0;
    double seconds_lost = 0, seconds_kept = 0;
  };

  bool folder_answers();
  void report_silent_folder() const;
  bool begin_generation();
  Decision start();
  Decision evaluate_end(StartEnd& end, double lasted_s, const std::string& rank_errors);
  void report_changes();
  bool is_same_program();
  void report_failure(const StartEnd& end, const Lost& lost, const std::string& rank_errors);
  void report_last_output(const RankEnd& rank, const std::string& rank_errors) const;
  int sum_up(int code) const;

  const LaunchOptions& options_;
  const double began_ms_;
  const std::vector<launcher::HostSlots> hosts_;
  LaunchSetup setup_;
  std::string build_;  // of this process
  const TrainWords again_words_, first_words_;
  const std::filesystem::path run_dir_;
  train::RunGeneration generation_;
  HostRecords records_;
  launcher::StopSignals signals_;
  Progress progress_;
  Restarts restarts_;
  HostHealth health_;
  FirstSteps first_steps_;
  GivenFiles files_;
  Account account_;
  int64_t first_step_ = 0;
  bool folder_answers_ = true;
};

}  // namespace lockstep::launch
