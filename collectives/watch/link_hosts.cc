// Makes the links between hosts: rank 0 listens and sends its address over the channel that the
// ranks have already. The nonce sent with it keeps strangers out.
#include <map>

#include "collectives/agree/agreement.h"
#include "collectives/tcp/handshake.h"
#include "collectives/tcp/rendezvous_info.h"
#include "collectives/watch/host_links.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace lockstep::collectives {
namespace {

constexpr double kPatienceS = 10;

using Links = std::vector<std::unique_ptr<HostLink>>;
using RanksOfHosts = std::map<int, std::vector<FlightMoment>>;  // key: the first rank of the host

RanksOfHosts ranks_of(const std::vector<RankLocation>& locations) {
  std::map<std::string, int> first;
  RanksOfHosts ranks;
  for (size_t at = 0; at < locations.size(); ++at) {
    const auto rank = static_cast<int>(at);
    const int leader = first.try_emplace(locations[at].machine, rank).first->second;
    ranks[leader].push_back(first_moment(rank, locations[at]));
  }
  return ranks;
}

// Rank 0: accepts links until all hosts are connected or the time is up.
Links accept_links(const Socket& listener, uint64_t nonce, RanksOfHosts expected) {
  Links links;
  HandshakeListener handshakes(listener);
  const Deadline deadline(kPatienceS);
  expected.erase(0);
  while (!expected.empty() && !deadline.passed()) {
    std::optional<IncomingPeer> arrival = handshakes.next(deadline.poll_ms(100));
    if (!arrival || arrival->hello.nonce != nonce) continue;
    const auto who = expected.find(arrival->hello.rank);
    if (who == expected.end() || !send_answer(arrival->socket, Answer::kWelcome, nonce, ""))
      continue;
    links.push_back(std::make_unique<HostLink>(std::move(arrival->socket), std::move(who->second)));
    expected.erase(who);
  }
  for (const auto& [rank, ranks] : expected)
    log_warn("no connection from the host of rank {}: if a rank there hangs, it will not be named",
             rank);
  return links;
}

Links connect_to_rank_0(const RendezvousInfo& info,
                        int rank,
                        int size,
                        const FlightMoment& rank_0) {
  Hello hello;
  hello.rank = rank;
  hello.size = size;
  hello.nonce = info.nonce;
  std::string why;
  const Deadline deadline(kPatienceS);
  for (const std::string& address : info.addresses) {
    try {
      // An address that does not answer must leave time for the others.
      const Deadline turn(std::min(3.0, deadline.left_ms() / 1000));
      Socket socket = connect_to(address, info.port, turn);
      send_all(socket, &hello, sizeof(hello), turn);
      if (receive_notice(socket, turn).answer != Answer::kWelcome) throw SocketError("rejected");
      Links links;
      links.push_back(std::make_unique<HostLink>(std::move(socket), std::vector{rank_0}));
      return links;
    } catch (const SocketError& error) {
      if (!why.empty()) why += "; ";
      why += fmt::format("{}: {}", endpoint_text(address, info.port), error.what());
    }
    if (deadline.passed()) break;
  }
  log_warn("cannot reach rank 0: if it hangs, this host will not notice: {}", why);
  return {};
}

}  // namespace

std::vector<std::unique_ptr<HostLink>> link_hosts(Communicator& channel,
                                                  const std::vector<RankLocation>& locations,
                                                  const std::string& networks) {
  const RanksOfHosts ranks = ranks_of(locations);
  if (ranks.size() == 1) return {};
  Socket listener;
  std::string address_text;
  if (channel.rank() == 0) {
    try {
      listener = listen_on(0);
      address_text =
          text_of(local_rendezvous_info(port_of(listener), random_nonce(), "", networks));
    } catch (const SocketError& error) {
      log_warn("if a rank of another host hangs, it will not be named: {}", error.what());
    }
  }
  const std::optional<RendezvousInfo> info =
      parse_rendezvous_info(broadcast_text(channel, address_text));
  if (!info) return {};
  if (channel.rank() == 0) return accept_links(listener, info->nonce, ranks);
  if (ranks.count(channel.rank()) == 0) return {};
  return connect_to_rank_0(*info, channel.rank(), channel.size(), ranks.at(0).front());
}

}  // namespace lockstep::collectives
