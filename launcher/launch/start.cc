#include "launcher/launch/start.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <string_view>

#include "collectives/tcp/meeting.h"
#include "launcher/launch/agent_link.h"
#include "launcher/launch/messages.h"
#include "runtime/base/error.h"
#include "runtime/base/host.h"
#include "runtime/base/json.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"

namespace lockstep::launch {
namespace {

constexpr double kGreetingSeconds = 30;  // for the remote shell, and a slow machine
constexpr double kSilenceSeconds = 30;   // an agent says every 2 s that it lives
constexpr double kGraceSeconds = 4;      // in which survivors tell what they know

// Of this process, for ranks on other hosts, where a remote shell brings none.
std::vector<std::string> passed_variables() {
  constexpr std::array<std::string_view, 5> kPassed = {
      "LOCKSTEP_", "OMP_", "CUDA_", "NCCL_", "LD_LIBRARY_PATH="};
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (std::any_of(
            kPassed.begin(), kPassed.end(), [&](auto name) { return text.starts_with(name); }))
      variables.emplace_back(text);
  }
  return variables;
}

}  // namespace

Start::Start(const LaunchSetup& setup,
             const TrainWords& words,
             StopSignals& signals,
             Output& output)
    : setup_(setup),
      words_(words),
      signals_(signals),
      output_(output),
      token_(fmt::format("{:016x}{:016x}", random_nonce(), random_nonce())) {}

Start::~Start() = default;

StartEnd Start::run() {
  for (const HostSlots& host : setup_.hosts)
    hosts_.push_back(std::make_unique<AgentLink>(host, setup_.program, setup_.remote_shell));
  greet();
  if (!signals_.stop_requested() && order()) watch();
  hosts_.clear();
  end_.stop_requested = signals_.stop_requested();
  return std::move(end_);
}

// Until each host's agent has answered or will not.
void Start::greet() {
  const double end_ms = now_ms() + kGreetingSeconds * 1000;
  const auto awaited = [](const auto& host) { return host->is_open() && !host->greeted; };
  while (std::any_of(hosts_.begin(), hosts_.end(), awaited) && now_ms() < end_ms) {
    wait_for_news();
    if (signals_.read() != StopSignals::Wish::kNone) return;
  }
  for (const auto& host : hosts_)
    if (awaited(host)) lose(*host, fmt::format("no answer in {:g} s", kGreetingSeconds));
  std::erase_if(hosts_, [](const auto& host) { return !host->greeted; });
}

std::vector<std::string> Start::variables_of(int rank, int ranks, int local, int locals) const {
  return {fmt::format("RANK={}", rank),
          fmt::format("WORLD_SIZE={}", ranks),
          fmt::format("LOCAL_RANK={}", local),
          fmt::format("LOCAL_WORLD_SIZE={}", locals),
          fmt::format("MASTER_ADDR={}", root_host_),
          fmt::format("MASTER_PORT={}", root_port_),
          fmt::format("LOCKSTEP_TOKEN={}", token_)};
}

// Places the ranks on the hosts that are there, in their order, and has them started. False where
// there are too few.
bool Start::order() {
  const int slots = std::accumulate(hosts_.begin(), hosts_.end(), 0, [](int sum, const auto& host) {
    return sum + host->host().slots;
  });
  const int ranks = ranks_for(setup_.ranks, slots, setup_.lanes, setup_.allow_fewer);
  if (ranks == 0) {
    trouble(fmt::format("{} rank{} for {} slot{} on the hosts that answer",
                        setup_.ranks,
                        setup_.ranks == 1 ? "" : "s",
                        slots,
                        slots == 1 ? "" : "s"));
    return false;
  }
  if (ranks < setup_.ranks)
    log_warn("launch: goes on with {} of {} ranks, as {} slots answer", ranks, setup_.ranks, slots);
  const bool several = hosts_.size() > 1 && ranks > hosts_[0]->host().slots;
  const std::string& first = hosts_[0]->host().name;
  root_host_ = "127.0.0.1";
  if (several) root_host_ = is_this_host(first) ? host_name() : first;
  root_port_ = hosts_[0]->free_port;
  int next = 0;
  for (const auto& host : hosts_) {
    const int locals = std::min(host->host().slots, ranks - next);
    if (locals == 0) break;
    StartOrder order{std::filesystem::current_path().string(), {setup_.program}, {}};
    order.words.insert(order.words.end(), words_.begin(), words_.end());
    for (int local = 0; local < locals; ++local, ++next) {
      StartOrder::Rank rank{next, {}};
      if (!is_this_host(host->host().name)) rank.variables = passed_variables();
      for (std::string& variable : variables_of(next, ranks, local, locals))
        rank.variables.push_back(std::move(variable));
      order.ranks.push_back(std::move(rank));
      host->ranks.push_back({.rank = next});
    }
    host->send({MessageKind::kStart, -1, 0, to_text(order)});
  }
  std::erase_if(hosts_, [](const auto& host) { return host->ranks.empty(); });
  return true;
}

void Start::watch() {
  while (!all_ended()) {
    wait_for_news();
    switch (signals_.read()) {
      case StopSignals::Wish::kNone: break;
      case StopSignals::Wish::kStop: signal_all(SIGUSR1); break;
      case StopSignals::Wish::kKill: signal_all(SIGKILL); break;
    }
    if (failed_ms_ > 0 && now_ms() - failed_ms_ > kGraceSeconds * 1000) signal_all(SIGKILL);
    for (const auto& host : hosts_)
      if (host->silent_ms() > kSilenceSeconds * 1000)
        lose(*host, fmt::format("no sign of life for {:g} s", kSilenceSeconds));
  }
}

void Start::wait_for_news() {
  constexpr int kPollMs = 200;
  std::vector<pollfd> entries = {{signals_.descriptor(), POLLIN, 0}};
  for (const auto& host : hosts_) host->add_to(entries);
  poll(entries.data(), entries.size(), kPollMs);
  for (const auto& host : hosts_) {
    if (!host->is_open()) continue;
    try {
      heed(*host);
      if (!host->is_open()) lose(*host, "the connection ended");
    } catch (const CommError& error) {
      lose(*host, error.what());
    }
  }
}

void Start::heed(AgentLink& host) {
  for (const Message& message : host.read()) {
    const auto rank = std::find_if(host.ranks.begin(), host.ranks.end(), [&](const auto& linked) {
      return linked.rank == message.rank;
    });
    if (message.kind == MessageKind::kHello) {
      const Json json = Json::parse(message.text);
      host.name = json["host"].get<std::string>();
      host.free_port = json["port"].get<int>();
      host.greeted = true;
    }
    if (rank == host.ranks.end()) continue;
    if (message.kind == MessageKind::kBegun) rank->process = message.value;
    if (message.kind == MessageKind::kOutput) output_.add(rank->rank, message.value, message.text);
    if (message.kind == MessageKind::kEnded) {
      rank->ended = true;
      output_.finish(rank->rank);
      rank_ended({rank->rank, host.name, rank->process, message.value});
    }
  }
}

void Start::rank_ended(const RankEnd& end) {
  const int preempted = static_cast<int>(ExitCode::kPreempted);
  const bool in_order = end.code == 0 || end.code == preempted;
  if (!in_order && failed_ms_ == 0) failed_ms_ = now_ms();
  end_.ranks.push_back(end);
}

// The host's agent is gone, or what it says makes no sense. At the end of its ranks it goes by
// itself.
void Start::lose(AgentLink& host, const std::string& why) {
  const bool left = std::any_of(
      host.ranks.begin(), host.ranks.end(), [](const LinkedRank& rank) { return !rank.ended; });
  if (host.greeted && !left) return;
  const std::string complaint = host.complaint();
  trouble(fmt::format(
      "host {} is lost: {}{}", host.host().name, why, complaint.empty() ? "" : ": " + complaint));
  for (LinkedRank& rank : host.ranks) {
    if (rank.ended) continue;
    rank.ended = true;
    output_.finish(rank.rank);
    rank_ended({rank.rank, host.name, rank.process, std::nullopt});
  }
}

void Start::trouble(const std::string& what) {
  log_warn("launch: {}", what);
  end_.trouble.push_back(what);
}

void Start::signal_all(int number) {
  for (const auto& host : hosts_) host->send({MessageKind::kSignal, -1, number, ""});
}

bool Start::all_ended() const {
  return std::all_of(hosts_.begin(), hosts_.end(), [](const auto& host) {
    return std::all_of(
        host->ranks.begin(), host->ranks.end(), [](const LinkedRank& rank) { return rank.ended; });
  });
}

}  // namespace lockstep::launch
