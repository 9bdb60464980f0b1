#pragma once
// `launch`'s connection to the agent of one host.

#include <poll.h>

#include <string>
#include <vector>

#include "launcher/launch/messages.h"
#include "launcher/processes/child.h"
#include "launcher/processes/process_state.h"
#include "launcher/ranks/hostfile.h"

namespace lockstep::launch {

struct LinkedRank {
  int rank = 0;
  int process = 0;         // 0: not started
  bool ended = false;      // or has been given up
  bool reported = false;   // the agent has reported its end
  std::string state = {};  // of the process, if it cannot be killed
};

class AgentLink {
 public:
  // Starts the agent, with `program`, through `remote_shell` unless it is on this host. `given_up`
  // lists processes there; the agent reports which of them still exist. Throws IoError.
  AgentLink(const launcher::HostSlots& host,
            const std::string& program,
            const std::string& remote_shell,
            const std::vector<launcher::GivenUp>& given_up);
  // Kills the agent if it has not ended. Does not wait.
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  const launcher::HostSlots& host() const { return host_; }
  bool is_open() const { return agent_.output.is_open(); }
  void add_to(std::vector<pollfd>& entries) const;
  // Reads the messages that have arrived. Throws CommError for bytes that are not messages.
  std::vector<Message> read();
  // Does not wait until the message is read.
  void send(const Message& message) { agent_.input.write(encode(message)); }
  void flush() { agent_.input.flush(); }

  // Ends the agent, and with it the ranks that are left: on request, or by SIGKILL.
  void request_end() { agent_.input.close(); }
  void kill_agent();
  // Whether the agent, or the remote shell, has ended.
  bool agent_ended();
  pid_t agent() const { return agent_.process; }
  bool is_here() const { return launcher::is_this_host(host_.name); }

  // The time since the last message was read.
  double silent_ms() const;
  // The standard error of the agent or the remote shell, on one line.
  std::string error_output() const;

  // From the agent's first message. `unkillable`: which processes of given_up still exist.
  std::string name;  // of the host
  int free_port = 0;
  std::string build;  // of the agent's program
  std::string unkillable;
  bool answered = false;
  bool lost = false;  // given up

  std::vector<LinkedRank> ranks;

 private:
  launcher::HostSlots host_;
  launcher::Child agent_;
  bool reaped_ = false;
  MessageReader reader_;
  double last_read_ms_;
  std::string errors_;
};

}  // namespace lockstep::launch
