#pragma once
// One start of a run's ranks, from the first agent to the last rank's end.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/hostfile.h"
#include "launcher/launch/output.h"
#include "launcher/launch/process_state.h"
#include "launcher/launch/restarts.h"
#include "launcher/launch/stop_signals.h"
#include "runtime/train/folder/run_generation.h"

namespace lockstep::launch {

struct LaunchSetup {
  std::string program;  // under the same path on all hosts
  std::vector<HostSlots> hosts = {};
  std::string remote_shell;  // what runs a command on another host: "ssh -o BatchMode=yes"
  int ranks = 1;
  int64_t lanes = 1;
  bool allow_fewer = false;
  // How long a rank may be kept by the kernel without any progress; 0: for ever.
  double blocked_s = 0;
  std::string config = {};  // its text
  std::string build = {};   // that every host must have (program.h); empty: any
};

// What each rank runs: "train" and its arguments, in the folder of this process.
using TrainWords = std::vector<std::string>;

// How long an agent and `launch` take each other for alive without a word, of which there is one each
// two seconds.
constexpr double kAgentSilenceSeconds = 30;

// What `launch` remembers of a host from start to start.
struct HostRecord {
  bool fell_silent = false;            // in its last start; it gets less time to answer
  std::vector<GivenUp> given_up = {};  // while one of them is there the host gets no ranks
};
using HostRecords = std::map<std::string, HostRecord>;  // by the name in LaunchSetup::hosts

class AgentLink;
struct LinkedRank;

class Start {
 public:
  Start(const LaunchSetup& setup,
        const TrainWords& words,
        const RunGeneration& generation,
        HostRecords& records,
        StopSignals& signals,
        Output& output);
  ~Start();
  Start(const Start&) = delete;
  Start& operator=(const Start&) = delete;

  // Starts the ranks, and returns once all of them have ended or are given up: their host does not
  // answer, or SIGKILL does not end them. A stop is passed on to each rank once, as SIGUSR1. Some
  // seconds after a rank has failed those that are left are killed.
  StartEnd run();

 private:
  void greet();
  bool has_same_build();
  double greeting_seconds(const AgentLink& host) const;
  bool order();
  std::vector<std::string> variables_of(int rank, int ranks, int local, int locals) const;
  void watch();
  void wait_for_news();
  void heed(AgentLink& host);
  void rank_ended(const RankEnd& end);
  void give_up(AgentLink& host, LinkedRank& rank, const std::string& state, uint64_t started);
  void lose(AgentLink& host, const std::string& why);
  void lose_silent_hosts();
  void trouble(const std::string& what);
  void signal_all(int number);
  void kill_all();
  void beat();
  void keep(const std::function<bool(const AgentLink&)>& wanted);
  void end_agents();
  void name_undead(AgentLink& host);
  bool too_few_left() const;
  bool all_ended() const;
  static bool all_ended(const AgentLink& host);

  const LaunchSetup& setup_;
  const TrainWords& words_;
  const RunGeneration& generation_;
  HostRecords& records_;
  StopSignals& signals_;
  Output& output_;
  std::vector<std::unique_ptr<AgentLink>> hosts_;
  std::vector<std::unique_ptr<AgentLink>> leaving_;  // of hosts that have no part in this start
  std::string token_, root_host_;
  int root_port_ = 0;
  double failed_ms_ = 0;  // when the first rank did; 0: none
  double killed_ms_ = 0, last_beat_ms_ = 0;
  StartEnd end_;
};

}  // namespace lockstep::launch
