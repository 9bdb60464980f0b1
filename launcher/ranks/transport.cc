#include "launcher/ranks/transport.h"

#include <fmt/core.h>

#include <cstdlib>

#include "collectives/agree/agreement.h"
#include "runtime/base/log.h"

namespace lockstep {
namespace {

using Transport = CommConfig::Transport;

constexpr const char* kRemedy =
    "set OMPI_MCA_btl_tcp_if_include to the network that the hosts share, such as eth0 or "
    "10.0.0.0/24, or set comm.transport: MPI";

bool on_several_hosts(Session& session) {
  Communicator& communicator = session.communicator();
  const bool others = session.local_ranks() < communicator.size();
  return sum_over_ranks(communicator, others ? 1 : 0) > 0;
}

// Whether MPI uses this kind of network on all ranks.
bool all_have(Session& session, MpiNetwork network) {
  Communicator& communicator = session.communicator();
  return sum_over_ranks(communicator, session.mpi_network() == network ? 1 : 0) ==
         communicator.size();
}

// Rank 0's limits, for all ranks: mpirun does not pass its environment to other hosts. Throws
// AgreedError if a value is invalid.
TimeLimits agreed_time_limits(Communicator& communicator) {
  TimeLimits limits;
  limits.rendezvous_s = 30;  // all ranks are running already
  run_on_root(communicator, [&] {
    read_time_limits([](const char* name) { return std::getenv(name); }, limits);
  });
  communicator.broadcast(reinterpret_cast<std::byte*>(&limits), sizeof(limits), 0);
  return limits;
}

void move_or_throw(Session& session, const TimeLimits& limits) {
  try {
    session.move_to_tcp(limits);
  } catch (const AgreedError& error) {
    throw AgreedError(
        error.code(),
        fmt::format("comm.transport: value is TCP, but {}; {}", error.what(), kRemedy));
  }
}

void move_if_possible(Session& session, const TimeLimits& limits) {
  try {
    session.move_to_tcp(limits);
  } catch (const AgreedError& error) {
    if (session.communicator().rank() == 0)
      log_warn("comm.transport: MPI carries messages, since {}; {}", error.what(), kRemedy);
  }
}

void choose_for_auto(Session& session, const TimeLimits& limits) {
  if (all_have(session, MpiNetwork::kPlainTcp)) {
    move_if_possible(session, limits);
  } else if (session.communicator().rank() == 0 && session.mpi_network() == MpiNetwork::kUnknown) {
    log_info(
        "comm.transport: MPI carries messages; TCP may be faster if {} has no network but Ethernet",
        session.library());
  }
}

}  // namespace

void choose_transport(Session& session, Transport wanted, const OpSet& ops) {
  const std::string now = session.communicator().name();
  if (now == "tcp" && wanted == Transport::kMpi)
    throw AgreedError(ExitCode::kUsage,
                      "comm.transport: value is MPI; allowed: TCP, AUTO, as no MPI launcher has "
                      "started the ranks");
  if (now != "mpi" || wanted == Transport::kMpi || ops.separate_memory) return;
  const TimeLimits limits = agreed_time_limits(session.communicator());
  if (wanted == Transport::kTcp && session.communicator().size() > 1)
    move_or_throw(session, limits);
  else if (on_several_hosts(session))
    choose_for_auto(session, limits);
}

std::string name_of_transport(const Communicator& slices, const Topology& topology) {
  if (slices.size() == 1) return "";
  if (!topology.shares_memory) return slices.name();
  return topology.nodes == 1 ? "shared memory" : fmt::format("shared memory and {}", slices.name());
}

}  // namespace lockstep
