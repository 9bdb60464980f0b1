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

// A host that does not answer is lost after a while. If ranks have failed, for example because the
// network to that host is down, and those that answer have ended or had the time to, it is lost sooner: the
// others know already, and wait to go on.
void Start::lose_silent_hosts() {
  const auto silent = [](const auto& host) {
    return host->silent_ms() > kSilenceOfFailedSeconds * 1000;
  };
  const bool others_ended = std::all_of(hosts_.begin(), hosts_.end(), [&](const auto& host) {
    return silent(host) || all_ended(*host);
  });
  const bool failed = failed_ms_ > 0 && (others_ended || killed_ms_ > 0);
  const double limit_s = failed ? kSilenceOfFailedSeconds : kAgentSilenceSeconds;
  for (const auto& host : hosts_) {
    if (host->silent_ms() <= limit_s * 1000 || all_ended(*host)) continue;
    records_[host->host().name].fell_silent = true;
    lose(*host, fmt::format("no sign of life for {:g} s", limit_s));
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

// The host's agent is gone, or what it says makes no sense. At the end of its ranks it goes by
// itself.
void Start::lose(AgentLink& host, const std::string& why) {
  if (host.lost) return;
  const bool left = std::any_of(
      host.ranks.begin(), host.ranks.end(), [](const LinkedRank& rank) { return !rank.ended; });
  if (host.greeted && !left) return;
  end_.lost_hosts.push_back(host.host().name);
  const std::string complaint = host.complaint();
  trouble(fmt::format(
      "host {} is lost: {}{}", host.host().name, why, complaint.empty() ? "" : ": " + complaint));
  host.lost = true;
  for (LinkedRank& rank : host.ranks) {
    if (rank.ended) continue;
    rank.ended = true;
    output_.finish(rank.rank);
    rank_ended({rank.rank, host.name, rank.process, std::nullopt, rank.state, host.host().name});
  }
}

// Those that do not end by it are told of by their agents.
void Start::kill_all() {
  constexpr double kAgainMs = 1000;
  if (now_ms() - killed_ms_ < kAgainMs) return;
  killed_ms_ = now_ms();
  signal_all(SIGKILL);
}

// Each agent ends by itself, or is killed after a while; one that does not end by that is left.
void Start::end_agents() {
  constexpr double kPatienceMs = 2000, kDyingMs = 1000;
  keep([](const AgentLink&) { return false; });
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
  for (const auto& host : leaving_) name_undead(*host);
  leaving_.clear();
}

void Start::name_undead(AgentLink& host) {
  trouble(fmt::format("the {} host {} (process {}) cannot be killed: {}",
                      host.is_here() ? "agent of" : "remote shell to",
                      host.host().name,
                      host.agent(),
                      state_text(host.agent())));
  if (!host.is_here()) return;
  records_[host.host().name].given_up.push_back(given_up_now(host.agent()));
  for (LinkedRank& rank : host.ranks) {
    const GivenUp process = given_up_now(rank.process);
    if (rank.process > 0 && !rank.reported && rank.state.empty() && is_there(process))
      give_up(host, rank, state_text(rank.process), process.start_ticks);
  }
}

// No start can have enough ranks for as long as those that were given up are there.
bool Start::too_few_left() const {
  int slots = 0, lost = 0;
  for (const HostSlots& host : setup_.hosts)
    (records_.at(host.name).given_up.empty() ? slots : lost) += host.slots;
  return lost > 0 && ranks_for(setup_.ranks, slots, setup_.lanes, setup_.allow_fewer) == 0;
}

}  // namespace lockstep::launch
