#pragma once
// The connections among the watchdogs of a run's hosts, independent of how the ranks exchange
// gradients: the first rank of each host has a TCP connection to rank 0. So rank 0 sees all ranks
// as if they were on its host, and each host sees rank 0. A process that ends or stops is noticed
// at once.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/tcp/socket.h"
#include "collectives/watch/rank_locations.h"
#include "runtime/base/flight_reader.h"

namespace lockstep::collectives {

// One end of a connection, and what has arrived from the other end.
class HostLink {
 public:
  // `ranks`: the ranks that the other end reports on, in ascending order, with what is known of
  // them.
  HostLink(Socket socket, std::vector<FlightMoment> ranks);

  // The last reported states of the other end's ranks.
  const std::vector<FlightMoment>& ranks() const { return ranks_; }
  // What the other end's watchdog has found.
  const std::optional<FlightFinding>& finding() const { return finding_; }
  // Why the connection is lost; empty if it is not, or if the other end announced that it leaves.
  const std::string& why_lost() const { return why_lost_; }

  // The following neither wait nor throw. Moments are skipped while a slow network has not taken
  // the last ones.
  void report(const std::vector<FlightMoment>& moments);
  void report(const FlightFinding& finding);
  // Sends and receives what can be moved without waiting.
  void move();
  // Announces that this end leaves ...
  void leave();
  // ... and waits, up to the deadline, until the other end has closed too.
  void close(const Deadline& deadline);

 private:
  void queue(uint32_t kind, const void* data, size_t bytes);
  void send();
  void receive();
  void read_messages();
  void read(uint32_t kind, std::string_view message);
  void lost(std::string why);

  Socket socket_;
  std::vector<FlightMoment> ranks_;
  std::optional<FlightFinding> finding_;
  std::string outgoing_, incoming_, why_lost_;
  bool has_left_ = false;
};

// Makes the links of this rank: rank 0's to the first rank of each other host, or that rank's to
// rank 0. Other ranks have none, nor does a run on one host. A connection that cannot be made is
// left out with a warning. Collective. `networks` is as in local_rendezvous_info().
std::vector<std::unique_ptr<HostLink>> link_hosts(Communicator& channel,
                                                  const std::vector<RankLocation>& locations,
                                                  const std::string& networks);

}  // namespace lockstep::collectives
