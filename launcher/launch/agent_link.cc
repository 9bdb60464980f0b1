#include "launcher/launch/agent_link.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "runtime/base/text.h"
#include "runtime/base/time.h"

namespace lockstep::launch {
namespace {

launcher::ChildOrder agent_order(const launcher::HostSlots& host,
                                 const std::string& program,
                                 const std::string& remote_shell,
                                 const std::vector<launcher::GivenUp>& given_up) {
  launcher::ChildOrder order{.with_input = true};
  std::vector<std::string> words = {"launch", "--agent"};
  if (!given_up.empty()) words.insert(words.end(), {"--given-up", launcher::to_text(given_up)});
  if (launcher::is_this_host(host.name)) {
    order.words = {program};
    order.words.insert(order.words.end(), words.begin(), words.end());
  } else {
    order.words = words_of(remote_shell);
    order.words.push_back(host.name);
    order.words.push_back(fmt::format("exec {} {}", shell_word(program), joined(words, " ")));
  }
  return order;
}

}  // namespace

AgentLink::AgentLink(const launcher::HostSlots& host,
                     const std::string& program,
                     const std::string& remote_shell,
                     const std::vector<launcher::GivenUp>& given_up)
    : name(host.name),
      host_(host),
      agent_(launcher::start_child(agent_order(host, program, remote_shell, given_up))),
      last_read_ms_(now_ms()) {}

AgentLink::~AgentLink() {
  if (!agent_ended()) kill_agent();
}

bool AgentLink::agent_ended() {
  reaped_ = reaped_ || waitpid(agent_.process, nullptr, WNOHANG) != 0;
  return reaped_;
}

// Kills the ranks of this host before their agent, which may be frozen. Their process ids cannot be
// reused as long as the agent has not waited for them.
void AgentLink::kill_agent() {
  for (const LinkedRank& rank : ranks)
    if (is_here() && rank.process > 0 && !rank.reported) kill(-rank.process, SIGKILL);
  kill(-agent_.process, SIGKILL);
}

void AgentLink::add_to(std::vector<pollfd>& entries) const {
  for (const launcher::Pipe* pipe : {&agent_.output, &agent_.errors})
    if (pipe->is_open()) entries.push_back({pipe->descriptor(), POLLIN, 0});
}

std::vector<Message> AgentLink::read() {
  constexpr size_t kMaxBytes = 4096;
  if (agent_.errors.is_open()) errors_ += agent_.errors.read();
  if (errors_.size() > kMaxBytes) errors_.erase(0, errors_.size() - kMaxBytes);
  if (!agent_.output.is_open()) return {};
  const std::string bytes = agent_.output.read();
  if (!bytes.empty()) last_read_ms_ = now_ms();
  reader_.add(bytes);
  std::vector<Message> messages;
  while (std::optional<Message> message = reader_.next()) messages.push_back(std::move(*message));
  return messages;
}

double AgentLink::silent_ms() const { return now_ms() - last_read_ms_; }

std::string AgentLink::error_output() const {
  std::string text = errors_;
  std::ranges::replace(text, '\n', ' ');
  return escape_controls(text);
}

}  // namespace lockstep::launch
