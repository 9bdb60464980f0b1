#include "launcher/launch/agent_link.h"

#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "runtime/base/text.h"
#include "runtime/base/time.h"

namespace lockstep::launch {
namespace {

std::string quoted(const std::string& word) {
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

ChildOrder agent_order(const HostSlots& host,
                       const std::string& program,
                       const std::string& remote_shell) {
  ChildOrder order{.with_input = true};
  if (is_this_host(host.name)) {
    order.words = {program, "launch", "--agent"};
  } else {
    order.words = words_of(remote_shell);
    order.words.push_back(host.name);
    order.words.push_back("exec " + quoted(program) + " launch --agent");
  }
  return order;
}

}  // namespace

AgentLink::AgentLink(const HostSlots& host,
                     const std::string& program,
                     const std::string& remote_shell)
    : name(host.name),
      host_(host),
      agent_(start_child(agent_order(host, program, remote_shell))),
      heard_ms_(now_ms()) {}

AgentLink::~AgentLink() {
  constexpr double kPatienceMs = 2000;
  agent_.input.close();
  const double end_ms = now_ms() + kPatienceMs;
  while (waitpid(agent_.process, nullptr, WNOHANG) == 0) {
    if (now_ms() > end_ms) {
      kill(-agent_.process, SIGKILL);
      waitpid(agent_.process, nullptr, 0);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void AgentLink::add_to(std::vector<pollfd>& entries) const {
  for (const Pipe* pipe : {&agent_.output, &agent_.errors})
    if (pipe->is_open()) entries.push_back({pipe->descriptor(), POLLIN, 0});
}

std::vector<Message> AgentLink::read() {
  constexpr size_t kMostBytes = 4096;
  if (agent_.errors.is_open()) errors_ += agent_.errors.read();
  if (errors_.size() > kMostBytes) errors_.erase(0, errors_.size() - kMostBytes);
  if (!agent_.output.is_open()) return {};
  const std::string bytes = agent_.output.read();
  if (!bytes.empty()) heard_ms_ = now_ms();
  reader_.add(bytes);
  std::vector<Message> messages;
  while (std::optional<Message> message = reader_.next()) messages.push_back(std::move(*message));
  return messages;
}

double AgentLink::silent_ms() const { return now_ms() - heard_ms_; }

std::string AgentLink::complaint() const {
  std::string text = escape_controls(errors_);
  for (size_t at = text.find("\\n"); at != std::string::npos; at = text.find("\\n"))
    text.replace(at, 2, " ");
  return text;
}

}  // namespace lockstep::launch
