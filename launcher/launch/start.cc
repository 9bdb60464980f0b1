#include "launcher/launch/start.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <string_view>

#include "collectives/tcp/rendezvous_info.h"
#include "launcher/launch/agent_link.h"
#include "launcher/launch/messages.h"
#include "launcher/launch/program.h"
#include "launcher/ranks/domain_ranks.h"
#include "runtime/base/error.h"
#include "runtime/base/host.h"
#include "runtime/base/json.h"
#include "runtime/base/log.h"
#include "runtime/base/passing_error.h"
#include "runtime/base/text.h"
#include "runtime/base/time.h"
#include "runtime/metrics/progress.h"

namespace lockstep::launch {
namespace {

constexpr double kAnswerSeconds = 30;         // for the remote shell, and for a slow machine
constexpr double kAnswerOfSilentSeconds = 5;  // for a host that fell silent in the last start
constexpr double kBeatSeconds = 2;            // between messages to the agents
constexpr double kGraceSeconds = 4;           // for the remaining ranks to report what they know

// This process's variables for ranks on other hosts, as a remote shell passes none.
std::vector<std::string> passed_variables() {
  constexpr std::array<std::string_view, 5> kPassed = {
      "LOCKSTEP_", "OMP_", "CUDA_", "NCCL_", "LD_LIBRARY_PATH="};
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (std::ranges::any_of(kPassed, [&](auto name) { return text.starts_with(name); }))
      variables.emplace_back(text);
  }
  return variables;
}

}  // namespace

Start::Start(const LaunchSetup& setup,
             const TrainWords& words,
             const train::RunGeneration& generation,
             HostRecords& records,
             launcher::StopSignals& signals,
             Output& output)
    : setup_(setup),
      words_(words),
      generation_(generation),
      records_(records),
      signals_(signals),
      output_(output),
      token_(fmt::format(
          "{:016x}{:016x}", collectives::random_nonce(), collectives::random_nonce())) {}

Start::~Start() = default;

StartEnd Start::run() {
  for (const launcher::HostSlots& host : setup_.hosts)
    hosts_.push_back(std::make_unique<AgentLink>(
        host, setup_.program, setup_.remote_shell, records_[host.name].given_up));
  await_agents();
  if (!signals_.stop_requested() && has_same_build() && order_ranks()) watch();
  end_agents();
  end_.stop_requested = signals_.stop_requested();
  end_.too_few_left = too_few_left();
  return std::move(end_);
}

// Waits until each host's agent has answered or will not.
void Start::await_agents() {
  const double begin_ms = now_ms();
  const auto awaited = [&](const auto& host) {
    return host->is_open() && !host->answered && !host->lost &&
           now_ms() - begin_ms < answer_seconds(*host) * 1000;
  };
  while (std::ranges::any_of(hosts_, awaited)) {
    wait_for_messages();
    if (signals_.read() != launcher::StopSignals::Request::kNone) return;
  }
  for (const auto& host : hosts_) {
    HostRecord& record = records_[host->host().name];
    if (!host->answered) {
      if (host->is_open())
        lose_host(*host, fmt::format("no answer in {:g} s", answer_seconds(*host)));
      continue;
    }
    if (host->unkillable.empty())
      record = {};
    else
      trouble(fmt::format("host {} is left out: processes that were given up there still exist: {}",
                          host->host().name,
                          host->unkillable));
  }
  keep_hosts([](const AgentLink& host) { return host.answered && host.unkillable.empty(); });
}

// A host that did not answer in the last start gets less time, so that the others need not wait
// long.
double Start::answer_seconds(const AgentLink& host) const {
  const bool brief = setup_.allow_fewer && records_.at(host.host().name).fell_silent;
  return brief ? kAnswerOfSilentSeconds : kAnswerSeconds;
}

bool Start::has_same_build() {
  if (setup_.build.empty()) return true;
  for (const auto& host : hosts_) {
    const std::string difference = difference_of_builds(setup_.build, host->build);
    if (difference.empty()) continue;
    end_.other_build = fmt::format("on host {} {}", host->host().name, difference);
    return false;
  }
  return true;
}

std::vector<std::string> Start::variables_of(int rank, int ranks, int local, int locals) const {
  std::vector<std::string> variables = {fmt::format("RANK={}", rank),
                                        fmt::format("WORLD_SIZE={}", ranks),
                                        fmt::format("LOCAL_RANK={}", local),
                                        fmt::format("LOCAL_WORLD_SIZE={}", locals),
                                        fmt::format("MASTER_ADDR={}", root_host_),
                                        fmt::format("MASTER_PORT={}", root_port_),
                                        fmt::format("LOCKSTEP_TOKEN={}", token_),
                                        fmt::format("LOCKSTEP_GENERATION={}", generation_.number),
                                        fmt::format("LOCKSTEP_LAUNCH_ID={}", generation_.launch),
                                        fmt::format("{}=1", kUnderLaunchVariable)};
  if (setup_.rank_per_domain)
    variables.push_back(fmt::format("{}=1", launcher::kRankPerDomainVariable));
  if (rank == 0 && output_.progress_columns() > 0)
    variables.push_back(
        fmt::format("{}={}", metrics::kProgressColumnsVariable, output_.progress_columns()));
  return variables;
}

// Assigns the ranks to the hosts that answered, in their order, and has them started. Returns false
// if the hosts have too few slots.
bool Start::order_ranks() {
  const int slots = std::accumulate(hosts_.begin(), hosts_.end(), 0, [](int sum, const auto& host) {
    return sum + host->host().slots;
  });
  const int ranks = ranks_for(setup_.ranks, slots, setup_.allow_fewer);
  if (ranks == 0) {
    trouble(fmt::format("{} rank{} for {} slot{} on the hosts that answer",
                        setup_.ranks,
                        plural(setup_.ranks),
                        slots,
                        plural(slots)));
    return false;
  }
  if (ranks < setup_.ranks)
    log_warn("launch: continues with {} of {} ranks, because the hosts that answer have {} slots",
             ranks,
             setup_.ranks,
             slots);
  const bool several = hosts_.size() > 1 && ranks > hosts_[0]->host().slots;
  const std::string& first = hosts_[0]->host().name;
  root_host_ = "127.0.0.1";
  if (several) root_host_ = launcher::is_this_host(first) ? host_name() : first;
  root_port_ = hosts_[0]->free_port;
  int next = 0;
  for (const auto& host : hosts_) {
    const int locals = std::min(host->host().slots, ranks - next);
    if (locals == 0) break;
    StartOrder order{.folder = std::filesystem::current_path().string(),
                     .words = {setup_.program},
                     .silence_s = host->is_here() ? 0 : kAgentSilenceSeconds,
                     .blocked_s = setup_.blocked_s};
    order.words.insert(order.words.end(), words_.begin(), words_.end());
    for (int local = 0; local < locals; ++local, ++next) {
      StartOrder::Rank rank{next, {}};
      if (!launcher::is_this_host(host->host().name)) rank.variables = passed_variables();
      for (std::string& variable : variables_of(next, ranks, local, locals))
        rank.variables.push_back(std::move(variable));
      order.ranks.push_back(std::move(rank));
      host->ranks.push_back({.rank = next});
    }
    host->send({MessageKind::kConfig, -1, 0, setup_.config});
    host->send({MessageKind::kStart, -1, 0, to_text(order)});
  }
  keep_hosts([](const AgentLink& host) { return !host.ranks.empty(); });
  return true;
}

void Start::watch() {
  while (!all_ended()) {
    wait_for_messages();
    switch (signals_.read()) {
      case launcher::StopSignals::Request::kNone: break;
      case launcher::StopSignals::Request::kStop: signal_all(SIGUSR1); break;
      case launcher::StopSignals::Request::kKill: signal_all(SIGKILL); break;
    }
    if (failed_ms_ > 0 && now_ms() - failed_ms_ > kGraceSeconds * 1000) kill_all();
    lose_silent_hosts();
  }
}

void Start::wait_for_messages() {
  constexpr int kPollMs = 200;
  std::vector<pollfd> entries = {{signals_.descriptor(), POLLIN, 0}};
  for (const auto& host : hosts_) host->add_to(entries);
  poll(entries.data(), entries.size(), kPollMs);
  beat();
  for (const auto& host : hosts_) {
    if (!host->is_open()) continue;
    try {
      handle_messages(*host);
      if (!host->is_open()) lose_host(*host, "the connection ended");
    } catch (const CommError& error) {
      lose_host(*host, error.what());
    } catch (const JsonError& error) {
      lose_host(*host, fmt::format("its first message is invalid: {}", error.what()));
    }
  }
}

void Start::handle_messages(AgentLink& host) {
  bool unkillable = false;
  for (const Message& message : host.read()) {
    const auto rank = std::ranges::find(host.ranks, message.rank, &LinkedRank::rank);
    if (message.kind == MessageKind::kHello) {
      const Json json = Json::parse(message.text);
      host.name = json["host"].get<std::string>();
      host.free_port = json["port"].get<int>();
      host.build = json.value("build", std::string());
      host.unkillable = json.value("undead", std::string());
      host.answered = true;
    }
    if (rank == host.ranks.end()) continue;
    if (message.kind == MessageKind::kBegun) rank->process = message.value;
    if (message.kind == MessageKind::kOutput) output_.add(rank->rank, message.value, message.text);
    if (message.kind == MessageKind::kEnded) {
      rank->reported = true;
      if (rank->ended) continue;
      rank->ended = true;
      output_.finish(rank->rank);
      rank_ended({rank->rank, host.name, rank->process, message.value, "", host.host().name});
    }
    if (message.kind == MessageKind::kUnkillable) {
      const Json json = Json::parse(message.text);
      give_up(host, *rank, json["state"].get<std::string>(), json["started"].get<uint64_t>());
      unkillable = true;
    }
  }
  if (unkillable) lose_host(host, "it has a process that cannot be killed");
}

void Start::rank_ended(const RankEnd& end) {
  const int preempted = static_cast<int>(ExitCode::kPreempted);
  const bool in_order = end.code == 0 || end.code == preempted;
  if (!in_order && failed_ms_ == 0) failed_ms_ = now_ms();
  end_.ranks.push_back(end);
}

void Start::trouble(const std::string& what) {
  log_warn("launch: {}", what);
  end_.trouble.push_back(what);
}

void Start::signal_all(int number) {
  for (const auto& host : hosts_) host->send({MessageKind::kSignal, -1, number, ""});
}

void Start::beat() {
  for (const auto& host : hosts_) host->flush();
  if (now_ms() - last_beat_ms_ < kBeatSeconds * 1000) return;
  last_beat_ms_ = now_ms();
  for (const auto& host : hosts_) host->send({});
}

// Keeps the wanted hosts; the others take no part in this start.
void Start::keep_hosts(const std::function<bool(const AgentLink&)>& wanted) {
  const auto kept = std::stable_partition(
      hosts_.begin(), hosts_.end(), [&](const auto& host) { return wanted(*host); });
  for (auto host = kept; host != hosts_.end(); ++host) (*host)->request_end();
  std::move(kept, hosts_.end(), std::back_inserter(leaving_));
  hosts_.erase(kept, hosts_.end());
}

bool Start::all_ended(const AgentLink& host) {
  return std::ranges::all_of(host.ranks, [](const LinkedRank& rank) { return rank.ended; });
}

bool Start::all_ended() const {
  return std::ranges::all_of(hosts_, [](const auto& host) { return all_ended(*host); });
}

}  // namespace lockstep::launch
