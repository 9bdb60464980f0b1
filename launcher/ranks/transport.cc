#include "launcher/ranks/transport.h"

#include <fmt/core.h>

#include <cstdlib>

#include "collectives/agree/agreement.h"
#include "runtime/base/log.h"

namespace lockstep::launcher {
namespace {

using Transport = CommConfig::Transport;

constexpr const char* kRemedy =
    "set OMPI_MCA_btl_tcp_if_include to the network that the hosts share, such as eth0 or "
    "10.0.0.0/24, or set comm.transport: MPI";

bool on_several_hosts(Session& session) {
  collectives::Communicator& communicator = session.communicator();
  const bool others = session.local_ranks() < communicator.size();
  return collectives::sum_over_ranks(communicator, others ? 1 : 0) > 0;
}

// Whether MPI uses this kind of network on all ranks.
bool all_have(Session& session, collectives::MpiNetwork network) {
  collectives::Communicator& communicator = session.communicator();
  return collectives::sum_over_ranks(communicator, session.mpi_network() == network ? 1 : 0) ==
         communicator.size();
}

// Rank 0's limits, for all ranks: mpirun does not pass its environment to other hosts. Throws
// AgreedError if a value is invalid.
collectives::TimeLimits agreed_time_limits(collectives::Communicator& communicator) {
  collectives::TimeLimits limits;
  limits.rendezvous_s = 30;  // all ranks are running already
  collectives::run_on_root(communicator, [&] {
    collectives::read_time_limits([](const char* name) { return std::getenv(name); }, limits);
  });
  communicator.broadcast(reinterpret_cast<std::byte*>(&limits), sizeof(limits), 0);
  return limits;
}

void move_or_throw(Session& session, const collectives::TimeLimits& limits) {
  try {
    session.move_to_tcp(limits);
  } catch (const collectives::AgreedError& error) {
    throw collectives::AgreedError(
        error.code(),
        fmt::format("comm.transport: value is TCP, but {}; {}", error.what(), kRemedy));
  }
}

void move_if_possible(Session& session, const collectives::TimeLimits& limits) {
  try {
    session.move_to_tcp(limits);
  } catch (const collectives::AgreedError& error) {
    if (session.communicator().rank() == 0)
      log_warn("comm.transport: MPI carries messages, since {}; {}", error.what(), kRemedy);
  }
}

void choose_for_auto(Session& session, const collectives::TimeLimits& limits) {
  if (all_have(session, collectives::MpiNetwork::kPlainTcp)) {
    move_if_possible(session, limits);
  } else if (session.communicator().rank() == 0 &&
             session.mpi_network() == collectives::MpiNetwork::kUnknown) {
    log_info(
        "comm.transport: MPI carries messages; TCP may be faster if {} has no network but Ethernet",
        session.library());
  }
}

}  // namespace

void choose_transport(Session& session, Transport wanted, const exec::OpSet& ops) {
  const std::string now = session.communicator().name();
  if (now == "tcp" && wanted == Transport::kMpi)
    throw collectives::AgreedError(
        ExitCode::kUsage,
        "comm.transport: value is MPI; allowed: TCP, AUTO, as no MPI launcher has "
        "started the ranks");
  if (now != "mpi" || wanted == Transport::kMpi || ops.separate_memory) return;
  const collectives::TimeLimits limits = agreed_time_limits(session.communicator());
  if (wanted == Transport::kTcp && session.communicator().size() > 1)
    move_or_throw(session, limits);
  else if (on_several_hosts(session))
    choose_for_auto(session, limits);
}

std::string name_of_transport(const collectives::Communicator& slices,
                              const collectives::Topology& topology) {
  if (slices.size() == 1) return "";
  if (!topology.shares_memory) return slices.name();
  return topology.nodes == 1 ? "shared memory" : fmt::format("shared memory and {}", slices.name());
}

}  // namespace lockstep::launcher
