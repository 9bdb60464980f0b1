#pragma once
// One start of a run's ranks, from the first agent to the last rank's end.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/hostfile.h"
#include "launcher/launch/output.h"
#include "launcher/launch/restarts.h"
#include "launcher/launch/stop_signals.h"

namespace lockstep::launch {

struct LaunchSetup {
  std::string program;  // under the same path on all hosts
  std::vector<HostSlots> hosts = {};
  std::string remote_shell;  // what runs a command on another host: "ssh -o BatchMode=yes"
  int ranks = 1;
  int64_t lanes = 1;
  bool allow_fewer = false;
};

// What each rank runs: "train" and its arguments, in the folder of this process.
using TrainWords = std::vector<std::string>;

class AgentLink;

class Start {
 public:
  Start(const LaunchSetup& setup, const TrainWords& words, StopSignals& signals, Output& output);
  ~Start();
  Start(const Start&) = delete;
  Start& operator=(const Start&) = delete;

  // Starts the ranks, and returns once all of them have ended. A stop is passed on to each rank
  // once, as SIGUSR1. Some seconds after a rank has failed those that are left are killed.
  StartEnd run();

 private:
  void greet();
  bool order();
  std::vector<std::string> variables_of(int rank, int ranks, int local, int locals) const;
  void watch();
  void wait_for_news();
  void heed(AgentLink& host);
  void rank_ended(const RankEnd& end);
  void lose(AgentLink& host, const std::string& why);
  void trouble(const std::string& what);
  void signal_all(int number);
  bool all_ended() const;

  const LaunchSetup& setup_;
  const TrainWords& words_;
  StopSignals& signals_;
  Output& output_;
  std::vector<std::unique_ptr<AgentLink>> hosts_;
  std::string token_, root_host_;
  int root_port_ = 0;
  double failed_ms_ = 0;  // when the first rank did; 0: none
  StartEnd end_;
};

}  // namespace lockstep::launch
