#pragma once
// One start of a run's ranks, from the first agent to the end of the last rank.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/launch/output.h"
#include "launcher/launch/restarts.h"
#include "launcher/processes/process_state.h"
#include "launcher/processes/stop_signals.h"
#include "launcher/ranks/hostfile.h"
#include "runtime/train/folder/run_generation.h"

namespace lockstep::launch {

struct LaunchSetup {
  std::string program;  // the same path on all hosts
  std::vector<launcher::HostSlots> hosts = {};
  std::string remote_shell;  // runs a command on another host: "ssh -o BatchMode=yes"
  int ranks = 1;
  bool rank_per_domain = false;  // each rank binds itself to a NUMA domain of its host
  bool allow_fewer = false;
  // How long a rank may be blocked in the kernel without any progress; 0: no limit.
  double blocked_s = 0;
  std::string config = {};  // its text
  std::string build = {};   // required on every host (program.h); empty: any
};

// The command of each rank: "train" and its arguments, run in the folder of this process.
using TrainWords = std::vector<std::string>;

// How long an agent and `launch` wait for a message before they take the other end for dead. Each
// sends one every two seconds.
constexpr double kAgentSilenceSeconds = 30;

// What `launch` remembers of a host from one start to the next.
struct HostRecord {
  bool fell_silent = false;                      // in its last start; it gets less time to answer
  std::vector<launcher::GivenUp> given_up = {};  // while one of them exists, the host gets no ranks
};
using HostRecords = std::map<std::string, HostRecord>;  // key: the name in LaunchSetup::hosts

class AgentLink;
struct LinkedRank;

class Start {
 public:
  Start(const LaunchSetup& setup,
        const TrainWords& words,
        const train::RunGeneration& generation,
        HostRecords& records,
        launcher::StopSignals& signals,
        Output& output);
  ~Start();
  Start(const Start&) = delete;
  Start& operator=(const Start&) = delete;

  // Starts the ranks. Returns once all have ended or are given up, because their host does not
  // answer or SIGKILL does not end them. A request to stop is passed to each rank once, as SIGUSR1.
  // Some seconds after a rank has failed, the remaining ones are killed.
  StartEnd run();

 private:
  void await_agents();
  bool has_same_build();
  double answer_seconds(const AgentLink& host) const;
  bool order_ranks();
  std::vector<std::string> variables_of(int rank, int ranks, int local, int locals) const;
  void watch();
  void wait_for_messages();
  void handle_messages(AgentLink& host);
  void rank_ended(const RankEnd& end);
  void give_up(AgentLink& host, LinkedRank& rank, const std::string& state, uint64_t started);
  void lose_host(AgentLink& host, const std::string& why);
  void lose_silent_hosts();
  void trouble(const std::string& what);
  void signal_all(int number);
  void kill_all();
  void beat();
  void keep_hosts(const std::function<bool(const AgentLink&)>& wanted);
  void end_agents();
  void report_unkillable_agent(AgentLink& host);
  bool too_few_left() const;
  bool all_ended() const;
  static bool all_ended(const AgentLink& host);

  const LaunchSetup& setup_;
  const TrainWords& words_;
  const train::RunGeneration& generation_;
  HostRecords& records_;
  launcher::StopSignals& signals_;
  Output& output_;
  std::vector<std::unique_ptr<AgentLink>> hosts_;
  std::vector<std::unique_ptr<AgentLink>>
      leaving_;  // agents of hosts that take no part in this start
  std::string token_, root_host_;
  int root_port_ = 0;
  double failed_ms_ = 0;  // when the first rank failed; 0: none has
  double killed_ms_ = 0, last_beat_ms_ = 0;
  StartEnd end_;
};

}  // namespace lockstep::launch
