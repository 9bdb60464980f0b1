#include "launcher/transport.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/agreement.h"
#include "runtime/base/log.h"

namespace lockstep {
namespace {

using Transport = CommConfig::Transport;

constexpr const char* kRemedy =
    "OMPI_MCA_btl_tcp_if_include can name the network that the hosts share, as eth0 or "
    "10.0.0.0/24; comm.transport: MPI does without";

bool on_several_hosts(Session& session) {
  Communicator& communicator = session.communicator();
  const bool others = session.local_ranks() < communicator.size();
  return sum_over_ranks(communicator, others ? 1 : 0) > 0;
}

// Whether all ranks say so of their MPI.
bool all_have(Session& session, MpiNetwork network) {
  Communicator& communicator = session.communicator();
  return sum_over_ranks(communicator, session.mpi_network() == network ? 1 : 0) ==
         communicator.size();
}

void move_or_refuse(Session& session) {
  try {
    session.move_to_tcp();
  } catch (const AgreedError& error) {
    throw AgreedError(
        error.code(),
        fmt::format("comm.transport: value is TCP, but {}; {}", error.what(), kRemedy));
  }
}

void move_if_possible(Session& session) {
  try {
    session.move_to_tcp();
  } catch (const AgreedError& error) {
    if (session.communicator().rank() == 0)
      spdlog::warn("comm.transport: MPI carries messages, since {}; {}", error.what(), kRemedy);
  }
}

void choose(Session& session) {
  if (all_have(session, MpiNetwork::kPlainTcp)) {
    move_if_possible(session);
  } else if (session.communicator().rank() == 0 && session.mpi_network() == MpiNetwork::kUnknown) {
    spdlog::info(
        "comm.transport: MPI carries messages; TCP may be faster where {} has no network but "
        "Ethernet",
        session.library());
  }
}

}  // namespace

void choose_transport(Session& session,
                      Transport wanted,
                      const Topology& topology,
                      const OpSet& ops) {
  const std::string now = session.communicator().name();
  if (now == "tcp" && wanted == Transport::kMpi)
    throw AgreedError(ExitCode::kUsage,
                      "comm.transport: value is MPI; allowed where no MPI launcher started the "
                      "ranks: TCP, AUTO");
  if (now != "mpi" || wanted == Transport::kMpi || ops.separate_memory) return;
  const bool hosts = on_several_hosts(session);
  if (wanted == Transport::kTcp && (hosts || topology.nodes > 1)) move_or_refuse(session);
  if (wanted == Transport::kAuto && hosts) choose(session);
}

std::string name_of_transport(const Communicator& slices, const Topology& topology) {
  if (slices.size() == 1) return "";
  if (!topology.shares_memory) return slices.name();
  return topology.nodes == 1 ? "shared memory" : fmt::format("shared memory and {}", slices.name());
}

}  // namespace lockstep
