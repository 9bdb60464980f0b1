// What a start gives up: hosts that do not answer, and processes that SIGKILL does not end.
#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "launcher/launch/agent_link.h"
#include "launcher/launch/start.h"
#include "runtime/base/time.h"

namespace lockstep::launch {
namespace {

constexpr double kSilenceOfFailedSeconds = 5;  // once a rank has failed

}  // namespace

// Gives up a host that does not answer for a while. The limit is shorter if ranks have failed, for
// example because the network to that host is down, and the ranks of all other hosts have ended or
// been killed: then only the silent host delays the restart.
void Start::lose_silent_hosts() {
  const auto silent = [](const auto& host) {
    return host->silent_ms() > kSilenceOfFailedSeconds * 1000;
  };
  const bool others_ended = std::ranges::all_of(
      hosts_, [&](const auto& host) { return silent(host) || all_ended(*host); });
  const bool failed = failed_ms_ > 0 && (others_ended || killed_ms_ > 0);
  const double limit_s = failed ? kSilenceOfFailedSeconds : kAgentSilenceSeconds;
  for (const auto& host : hosts_) {
    if (host->silent_ms() <= limit_s * 1000 || all_ended(*host)) continue;
    records_[host->host().name].fell_silent = true;
    lose_host(*host, fmt::format("no sign of life for {:g} s", limit_s));
  }
}

void Start::give_up(AgentLink& host, LinkedRank& rank, const std::string& state, uint64_t started) {
  rank.state = state;
  records_[host.host().name].given_up.push_back({rank.process, started});
  trouble(
      fmt::format("rank {} on {} (process {}) cannot be killed: {}; what it holds there, such as "
                  "memory, ports or a GPU, stays taken",
                  rank.rank,
                  host.name,
                  rank.process,
                  state));
}

// Gives up a host whose agent is gone or sends invalid messages. After the end of its ranks, an
// agent ends normally.
void Start::lose_host(AgentLink& host, const std::string& why) {
  if (host.lost) return;
  const bool left =
      std::ranges::any_of(host.ranks, [](const LinkedRank& rank) { return !rank.ended; });
  if (host.answered && !left) return;
  end_.lost_hosts.push_back(host.host().name);
  const std::string error_output = host.error_output();
  trouble(fmt::format("host {} is lost: {}{}",
                      host.host().name,
                      why,
                      error_output.empty() ? "" : ": " + error_output));
  host.lost = true;
  for (LinkedRank& rank : host.ranks) {
    if (rank.ended) continue;
    rank.ended = true;
    output_.finish(rank.rank);
    rank_ended({rank.rank, host.name, rank.process, std::nullopt, rank.state, host.host().name});
  }
}

// The agents report ranks that SIGKILL does not end.
void Start::kill_all() {
  constexpr double kAgainMs = 1000;
  if (now_ms() - killed_ms_ < kAgainMs) return;
  killed_ms_ = now_ms();
  signal_all(SIGKILL);
}

// Waits until the agents have ended. Kills those that take too long, and reports and abandons those
// that survive it.
void Start::end_agents() {
  constexpr double kPatienceMs = 2000, kDyingMs = 1000;
  keep_hosts([](const AgentLink&) { return false; });
  for (const auto& host : leaving_)
    if (host->lost) host->kill_agent();
  const auto wait_for_all = [&](double ms) {
    for (const double end_ms = now_ms() + ms; !leaving_.empty() && now_ms() < end_ms;) {
      std::erase_if(leaving_, [](const auto& host) { return host->agent_ended(); });
      if (!leaving_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  wait_for_all(kPatienceMs);
  for (const auto& host : leaving_) host->kill_agent();
  wait_for_all(kDyingMs);
  for (const auto& host : leaving_) report_unkillable_agent(*host);
  leaving_.clear();
}

void Start::report_unkillable_agent(AgentLink& host) {
  trouble(fmt::format("the {} host {} (process {}) cannot be killed: {}",
                      host.is_here() ? "agent of" : "remote shell to",
                      host.host().name,
                      host.agent(),
                      launcher::state_text(host.agent())));
  if (!host.is_here()) return;
  records_[host.host().name].given_up.push_back(launcher::given_up_now(host.agent()));
  for (LinkedRank& rank : host.ranks) {
    const launcher::GivenUp process = launcher::given_up_now(rank.process);
    if (rank.process > 0 && !rank.reported && rank.state.empty() && launcher::is_there(process))
      give_up(host, rank, launcher::state_text(rank.process), process.start_ticks);
  }
}

// Whether no start can have enough ranks as long as the given-up processes exist.
bool Start::too_few_left() const {
  int slots = 0, lost = 0;
  for (const launcher::HostSlots& host : setup_.hosts)
    (records_.at(host.name).given_up.empty() ? slots : lost) += host.slots;
  return lost > 0 && ranks_for(setup_.ranks, slots, setup_.allow_fewer) == 0;
}

}  // namespace lockstep::launch
