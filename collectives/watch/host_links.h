#pragma once
// What the watchdogs of a run's hosts tell each other, whatever the ranks exchange gradients by: the
// first rank of each host has a TCP connection to rank 0. Rank 0 so sees all ranks, as if they were
// on its host, and each host sees rank 0; that a process is gone, or stopped, shows at once.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/tcp/socket.h"
#include "collectives/watch/rank_places.h"
#include "runtime/base/flight_reader.h"

namespace lockstep {

// The other end of one connection, and what has come from it.
class HostLink {
 public:
  // ranks: those that the other end tells of, in ascending order, with what is known of them.
  HostLink(Socket socket, std::vector<FlightMoment> ranks);

  // What they do, as told last.
  const std::vector<FlightMoment>& ranks() const { return ranks_; }
  // What the other end has found.
  const std::optional<FlightFinding>& finding() const { return finding_; }
  // Why the connection is no more, where the other end did not say that it leaves; else empty.
  const std::string& why_lost() const { return why_lost_; }

  // The next neither wait nor throw. What a slow network has not taken yet is not sent again.
  void tell(const std::vector<FlightMoment>& moments);
  void tell(const FlightFinding& finding);
  // Sends and receives what can be.
  void move();
  // Says that this end leaves ...
  void leave();
  // ... and waits until the other end knows it, up to the deadline.
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

// The links of this rank: rank 0's to the first rank of each other host, or that rank's to rank 0;
// none on the others, on one host, and to where no connection can be made, which the log says. All
// ranks together. networks: as in meeting_here().
std::vector<std::unique_ptr<HostLink>> link_hosts(Communicator& channel,
                                                  const std::vector<RankPlace>& places,
                                                  const std::string& networks);

}  // namespace lockstep
