#include "launcher/calibrate/measure_network.h"

#include <algorithm>

#include "collectives/agree/agreement.h"
#include "collectives/agree/find_topology.h"
#include "collectives/agree/link_rate.h"
#include "launcher/calibrate/machine_rates.h"
#include "launcher/ranks/transport.h"
#include "runtime/cpu/device.h"

namespace lockstep::launcher {

Link measure_network(Session& session) {
  const collectives::Topology topology = collectives::find_topology(session.communicator());
  if (topology.nodes == 1)
    throw collectives::AgreedError(
        ExitCode::kUsage,
        "doctor --calibrate: the ranks are on one host; allowed: alone, without mpirun, srun or "
        "WORLD_SIZE, to measure this host, or a rank on each of several hosts, to measure their "
        "network");
  choose_transport(session, CommConfig::Transport::kAuto, cpu::make_device()->ops());
  collectives::Communicator& communicator = session.communicator();
  constexpr int kMiB = 16;
  const collectives::LinkRate rate = collectives::measure_link(communicator, topology, kMiB);
  Link link;
  link.name = "network";
  link.latency_us = rate.latency_us;
  link.gbytes_per_s = rate.gbit / 8;
  link.unattended_mbytes =
      collectives::measure_unattended_bytes(communicator, topology, rate.gbit) / 1e6;
  link.from = "lockstep doctor --calibrate";
  link.date = today();
  return link;
}

void set_network(Hardware& hardware, const Link& link) {
  std::erase_if(hardware.links, [&](const Link& other) { return other.name == link.name; });
  hardware.links.push_back(link);
  hardware.network = link.name;
}

}  // namespace lockstep::launcher
