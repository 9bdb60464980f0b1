#pragma once
// `launch`'s connection to the agent of one host.

#include <poll.h>

#include <string>
#include <vector>

#include "launcher/hostfile.h"
#include "launcher/launch/child.h"
#include "launcher/launch/messages.h"
#include "launcher/launch/process_state.h"

namespace lockstep::launch {

struct LinkedRank {
  int rank = 0;
  int process = 0;         // 0: not begun
  bool ended = false;      // or given up
  bool reported = false;   // the agent has told its end
  std::string state = {};  // if it cannot be killed
};

class AgentLink {
 public:
  // Starts the agent, which is `program`, through `remote_shell` unless it is this host. given_up:
  // processes there of which it is to say whether they are gone. Throws IoError.
  AgentLink(const HostSlots& host,
            const std::string& program,
            const std::string& remote_shell,
            const std::vector<GivenUp>& given_up);
  // Kills the agent if it has not ended. Does not wait.
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  const HostSlots& host() const { return host_; }
  bool is_open() const { return agent_.output.is_open(); }
  void add_to(std::vector<pollfd>& entries) const;
  // What has come since. Throws CommError where it is no message.
  std::vector<Message> read();
  // Does not wait until it is read.
  void send(const Message& message) { agent_.input.write(encode(message)); }
  void send_rest() { agent_.input.flush(); }

  // The end of the agent, and so of what it has left of its ranks: it is told, or killed.
  void tell_end() { agent_.input.close(); }
  void kill_agent();
  // Whether it, or the remote shell, has ended.
  bool agent_ended();
  pid_t agent() const { return agent_.process; }
  bool is_here() const { return is_this_host(host_.name); }

  // How long nothing has come, as far as this process has looked.
  double silent_ms() const;
  // What the agent or the remote shell has said on its standard error, on one line.
  std::string complaint() const;

  // As the agent has said; `undead`: which of given_up are there.
  std::string name;  // of the host
  int free_port = 0;
  std::string build;  // of its program
  std::string undead;
  bool greeted = false;
  bool lost = false;  // it is not waited for

  std::vector<LinkedRank> ranks;

 private:
  HostSlots host_;
  Child agent_;
  bool reaped_ = false;
  MessageReader reader_;
  double heard_ms_;
  std::string errors_;
};

}  // namespace lockstep::launch
