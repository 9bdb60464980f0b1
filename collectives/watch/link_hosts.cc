// How the links between hosts are made: rank 0 listens, and says where over the channel that the
// ranks have already; the number that it says beside it lets nobody else in.
#include <map>

#include "collectives/agreement.h"
#include "collectives/tcp/handshake.h"
#include "collectives/tcp/meeting.h"
#include "collectives/watch/host_links.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace lockstep {
namespace {

constexpr double kPatienceS = 10;

using Links = std::vector<std::unique_ptr<HostLink>>;
using RanksOfHosts = std::map<int, std::vector<FlightMoment>>;  // by the first rank of the host

RanksOfHosts ranks_of(const std::vector<RankPlace>& places) {
  std::map<std::string, int> first;
  RanksOfHosts ranks;
  for (size_t at = 0; at < places.size(); ++at) {
    const auto rank = static_cast<int>(at);
    const int leader = first.try_emplace(places[at].machine, rank).first->second;
    ranks[leader].push_back(first_moment(rank, places[at]));
  }
  return ranks;
}

// Rank 0: until all have come, or the time is up.
Links receive(const Socket& listener, uint64_t nonce, RanksOfHosts expected) {
  Links links;
  Reception reception(listener);
  const Deadline deadline(kPatienceS);
  expected.erase(0);
  while (!expected.empty() && !deadline.passed()) {
    std::optional<Arrival> arrival = reception.next(deadline.poll_ms(100));
    if (!arrival || arrival->hello.nonce != nonce) continue;
    const auto who = expected.find(arrival->hello.rank);
    if (who == expected.end() || !tell(arrival->socket, Answer::kWelcome, nonce, "")) continue;
    links.push_back(std::make_unique<HostLink>(std::move(arrival->socket), std::move(who->second)));
    expected.erase(who);
  }
  for (const auto& [rank, ranks] : expected)
    log_warn(
        "nothing can be heard from the host of rank {}: a rank there that stands still is not named",
        rank);
  return links;
}

Links visit(const Meeting& meeting, int rank, int size, const FlightMoment& rank_0) {
  Hello hello;
  hello.rank = rank;
  hello.size = size;
  hello.nonce = meeting.nonce;
  std::string why;
  const Deadline deadline(kPatienceS);
  for (const std::string& address : meeting.addresses) {
    try {
      // One that does not answer must not take the time of the others.
      const Deadline turn(std::min(3.0, deadline.left_ms() / 1000));
      Socket socket = connect_to(address, meeting.port, turn);
      send_all(socket, &hello, sizeof(hello), turn);
      if (hear(socket, turn).answer != Answer::kWelcome) throw SocketError("turned away");
      Links links;
      links.push_back(std::make_unique<HostLink>(std::move(socket), std::vector{rank_0}));
      return links;
    } catch (const SocketError& error) {
      if (!why.empty()) why += "; ";
      why += fmt::format("{}: {}", endpoint_text(address, meeting.port), error.what());
    }
    if (deadline.passed()) break;
  }
  log_warn("rank 0 cannot be reached, so that nobody here sees when it stands still: {}", why);
  return {};
}

}  // namespace

std::vector<std::unique_ptr<HostLink>> link_hosts(Communicator& channel,
                                                  const std::vector<RankPlace>& places,
                                                  const std::string& networks) {
  const RanksOfHosts ranks = ranks_of(places);
  if (ranks.size() == 1) return {};
  Socket listener;
  std::string told;
  if (channel.rank() == 0) {
    try {
      listener = listen_on(0);
      told = text_of(meeting_here(port_of(listener), random_nonce(), "", networks));
    } catch (const SocketError& error) {
      log_warn("a rank of another host that stands still is not named: {}", error.what());
    }
  }
  const std::optional<Meeting> meeting = meeting_from(broadcast_text(channel, told));
  if (!meeting) return {};
  if (channel.rank() == 0) return receive(listener, meeting->nonce, ranks);
  if (ranks.count(channel.rank()) == 0) return {};
  return visit(*meeting, channel.rank(), channel.size(), ranks.at(0).front());
}

}  // namespace lockstep
