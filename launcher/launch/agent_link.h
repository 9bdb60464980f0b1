#pragma once
// `launch`'s connection to the agent of one host.

#include <poll.h>

#include <string>
#include <vector>

#include "launcher/hostfile.h"
#include "launcher/launch/child.h"
#include "launcher/launch/messages.h"

namespace lockstep::launch {

struct LinkedRank {
  int rank = 0;
  int process = 0;  // 0: not begun
  bool ended = false;
};

class AgentLink {
 public:
  // Starts the agent, which is `program`, through `remote_shell` unless it is this host. Throws IoError.
  AgentLink(const HostSlots& host, const std::string& program, const std::string& remote_shell);
  // Ends the agent, and so what it has left of its ranks.
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  const HostSlots& host() const { return host_; }
  bool is_open() const { return agent_.output.is_open(); }
  void add_to(std::vector<pollfd>& entries) const;
  // What has come since. Throws CommError where it is no message.
  std::vector<Message> read();
  void send(const Message& message) { agent_.input.write(encode(message)); }
  // How long nothing has come, as far as this process has looked.
  double silent_ms() const;
  // What the agent or the remote shell has said on its standard error, on one line.
  std::string complaint() const;

  // As the agent has said.
  std::string name;  // of the host
  int free_port = 0;
  bool greeted = false;

  std::vector<LinkedRank> ranks;

 private:
  HostSlots host_;
  Child agent_;
  MessageReader reader_;
  double heard_ms_;
  std::string errors_;
};

}  // namespace lockstep::launch
