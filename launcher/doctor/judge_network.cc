// Judges how the ranks were started, and what connects the hosts.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "launcher/doctor/judge.h"
#include "runtime/base/text.h"

namespace lockstep::doctor {
namespace {

constexpr Level kWarning = Level::kWarning, kError = Level::kError;

std::string gbit_text(double gbit) {
  return gbit < 1 ? fmt::format("{:.3g} Mbit/s", gbit * 1000) : fmt::format("{:.3g} Gbit/s", gbit);
}

const InterfaceFacts* find_interface(const NetworkFacts& network, const std::string& name) {
  const auto found = std::ranges::find(network.interfaces, name, &InterfaceFacts::name);
  return found == network.interfaces.end() ? nullptr : &*found;
}

const InterfaceFacts* used_by(const HostRanks& host) {
  return find_interface(host.first().network, host.first().network.used);
}

// Networks of containers and virtual machines, which end at their host.
bool is_local_bridge(const InterfaceFacts& interface) {
  if (interface.kind == "bridge") return true;
  return std::ranges::any_of(
      std::vector<std::string>{"docker", "br-", "virbr", "cni", "flannel", "podman", "lxc"},
      [&](const std::string& begin) { return interface.name.starts_with(begin); });
}

const RdmaPort* active_port(const HostRanks& host) {
  const auto& ports = host.first().network.rdma;
  const auto found = std::ranges::find_if(ports, carries_messages);
  return found == ports.end() ? nullptr : &*found;
}

std::string speed_text(const InterfaceFacts& interface) {
  return interface.speed_mbit > 0 ? gbit_text(static_cast<double>(interface.speed_mbit) / 1000)
                                  : "unknown speed";
}

constexpr const char* kChooseNetwork =
    "Set OMPI_MCA_btl_tcp_if_include (mpirun) or MASTER_ADDR to the network that the hosts share, "
    "or let the host's name resolve to it";

void judge_used_interface(const HostRanks& host, bool several, Findings& findings) {
  const NetworkFacts& network = host.first().network;
  const InterfaceFacts* const used = used_by(host);
  if (used == nullptr) {
    const char* const text = "no interface but loopback is up";
    if (several)
      findings.add(kError,
                   host.name,
                   "network.loopback",
                   text,
                   "Other hosts cannot reach this one",
                   kChooseNetwork);
    else
      findings.ok(host.name, "network.interface", fmt::format("{}, as one host needs none", text));
    return;
  }
  const std::string text = fmt::format("{} ({}, {}, {}) is tried first, since {}",
                                       used->name,
                                       network.used_address,
                                       used->kind,
                                       speed_text(*used),
                                       network.used_why);
  const auto better = std::ranges::find_if(network.interfaces, [&](const InterfaceFacts& other) {
    return !other.addresses.empty() && other.kind != "loopback" && !is_local_bridge(other) &&
           other.speed_mbit >= 2 * std::max<int64_t>(used->speed_mbit, 1) && used->speed_mbit > 0;
  });
  if (several && is_local_bridge(*used))
    findings.add(kWarning,
                 host.name,
                 "network.bridge",
                 text,
                 "Other hosts cannot reach this bridge: each start waits until another address is "
                 "tried, or fails",
                 kChooseNetwork);
  else if (several && better != network.interfaces.end())
    findings.add(kWarning,
                 host.name,
                 "network.slower",
                 fmt::format("{}, though {} has {}", text, better->name, speed_text(*better)),
                 "Gradients travel on the slower network",
                 kChooseNetwork);
  else
    findings.ok(host.name, "network.interface", text);
  constexpr double kErrors = 1e-5;
  if (used->packets > 0 &&
      static_cast<double>(used->errors) > kErrors * static_cast<double>(used->packets))
    findings.add(
        kWarning,
        host.name,
        "network.errors",
        fmt::format("{} counts {} errors in {} packets", used->name, used->errors, used->packets),
        "Lost packets are sent again, each after a pause",
        "Check the cable, the port and the driver");
}

// Each rank listens at a port of this range until the others have connected, and each connection
// takes another one.
void judge_ports(const HostRanks& host, size_t ranks, Findings& findings) {
  constexpr int kBesides = 100;  // for other programs
  const NetworkFacts& network = host.first().network;
  const int ports = network.last_port - network.first_port + 1;
  if (network.first_port == 0) return;
  const std::string text = fmt::format("ports {}-{}", network.first_port, network.last_port);
  const size_t needed = host.ranks.size() * (ranks + 1) + kBesides;
  if (static_cast<size_t>(std::max(ports, 0)) < needed)
    findings.add(kWarning,
                 host.name,
                 "network.ports",
                 fmt::format("{} for {} of {}", text, counted(host.ranks.size(), "rank"), ranks),
                 "Ranks that get no port do not start",
                 "Widen net.ipv4.ip_local_port_range with sysctl");
  else
    findings.ok(host.name, "network.ports", text);
}

// Whether one of the interfaces has the name, or, if `as_prefix`, begins with it.
bool names_interface(const NetworkFacts& network, const std::string& name, bool as_prefix) {
  return std::ranges::any_of(network.interfaces, [&](const InterfaceFacts& interface) {
    return as_prefix ? interface.name.starts_with(name) : interface.name == name;
  });
}

// Variables that name interfaces which are not there. Networks as 10.0.0.0/24 and lists of
// exceptions (^docker0) are left to MPI and NCCL.
void judge_network_variables(const HostRanks& host, Findings& findings) {
  const StartFacts& start = host.first().start;
  for (const auto& [variable, value] :
       {std::pair("OMPI_MCA_btl_tcp_if_include", start.mpi_networks),
        std::pair("NCCL_SOCKET_IFNAME", start.nccl_networks)}) {
    if (value.empty() || value.find('/') != std::string::npos || value[0] == '^') continue;
    const bool exact = value[0] == '=' || variable[0] == 'O';
    std::string list = value.substr(value[0] == '=' ? 1 : 0);
    std::ranges::replace(list, ',', ' ');
    for (const std::string& name : words_of(list)) {
      const std::string interface = name.substr(0, name.find(':'));
      if (names_interface(host.first().network, interface, !exact)) continue;
      findings.add(
          kWarning,
          host.name,
          "network.variable",
          fmt::format("{} names {}, which is not up here", variable, interface),
          "Ranks do not find each other, or another network is used",
          fmt::format("Name an interface that `ip -brief address` shows, or unset {}", variable));
    }
  }
}

void judge_rdma(const HostRanks& host, const RunFacts& run, bool several, Findings& findings) {
  const RankFacts& first = host.first();
  const RdmaPort* const active = active_port(host);
  // Cards often have a second port without a cable.
  for (const RdmaPort& port : first.network.rdma)
    if (active == nullptr && port.kind != "RoCE")
      findings.add(
          kWarning,
          host.name,
          "network.rdma_port",
          fmt::format("{} port {} ({}) is {}", port.device, port.port, port.kind, port.state),
          "MPI and NCCL use TCP",
          "Check the cable and the subnet manager, with ibstat or ethtool");
  if (active == nullptr) return;
  const std::string name =
      fmt::format("{} ({}, {})", active->device, active->kind, gbit_text(active->gbit));
  const bool gpus = !first.gpus.gpus.empty();
  const bool mpi_ignores = several && !gpus && first.start.mpi_network == "tcp";
  if (mpi_ignores || (several && !gpus && run.transport == "tcp"))
    findings.add(kWarning,
                 host.name,
                 "network.rdma_unused",
                 fmt::format("{} is up, but messages between hosts go over TCP", name),
                 "Gradients travel on the slower network",
                 first.start.mpi_network.empty()
                     ? "Start with an MPI that has UCX or libfabric"
                     : "Use an Open MPI with UCX or libfabric: ompi_info shows pml ucx or mtl ofi");
  else if (gpus && first.start.nccl_ib_disabled)
    findings.add(kWarning,
                 host.name,
                 "network.nccl_rdma",
                 fmt::format("NCCL_IB_DISABLE=1, though {} is up", name),
                 "NCCL exchanges gradients between hosts over TCP",
                 "Unset NCCL_IB_DISABLE");
  else
    findings.ok(host.name,
                "network.rdma",
                fmt::format("{} would carry {}{}",
                            name,
                            gpus ? "NCCL's messages" : "MPI's messages",
                            gpus && active->kind == "EFA" ? ", with the plugin aws-ofi-nccl" : ""));
}

void judge_differing_networks(const std::vector<HostRanks>& hosts, Findings& findings) {
  const auto of_used = [&](auto text) {
    return [=](const HostRanks& host) {
      const InterfaceFacts* const used = used_by(host);
      return used == nullptr ? std::string() : text(*used);
    };
  };
  const std::string mtus = differences(
      hosts, of_used([](const InterfaceFacts& used) { return fmt::format("{}", used.mtu); }));
  if (!mtus.empty())
    findings.add(kWarning,
                 "",
                 "network.mtu",
                 "the hosts' MTUs differ: " + mtus,
                 "Large packets are lost between them: connections are made, and then hang",
                 "Set the same MTU on all hosts and switches: ip link set dev NAME mtu N");
  const std::string speeds = differences(hosts, of_used(speed_text));
  if (!speeds.empty())
    findings.add(kWarning,
                 "",
                 "network.speeds",
                 "the hosts' networks differ: " + speeds,
                 "All hosts wait for the slowest",
                 "Check cable, switch port and the interface that is chosen on the slow host");
  const std::string ports = differences(hosts, [](const HostRanks& host) {
    const RdmaPort* const port = active_port(host);
    if (port == nullptr) return std::string();
    return fmt::format("{} x {} of {}",
                       std::ranges::count_if(host.first().network.rdma, carries_messages),
                       port->kind,
                       gbit_text(port->gbit));
  });
  if (!ports.empty())
    findings.add(kWarning,
                 "",
                 "network.rdma_differs",
                 "the hosts' fast networks differ: " + ports,
                 "All hosts wait for the slowest, or use TCP",
                 "Check the hosts without one, with ibstat or fi_info");
}

// "tcp carries messages between hosts; NCCL would use eth0".
std::string carriers_text(const RunFacts& run) {
  const RankFacts& first = run.ranks.front();
  std::string text = fmt::format("{} carries messages between hosts", run.transport);
  if (!first.start.mpi_network.empty())
    text += fmt::format(", where MPI has {}",
                        first.start.mpi_network == "tcp" ? "plain TCP" : "a faster network");
  if (first.gpus.gpus.empty()) return text;
  text += "; NCCL would use ";
  const auto& ports = first.network.rdma;
  const auto port = std::ranges::find_if(ports, carries_messages);
  if (port != ports.end() && !first.start.nccl_ib_disabled) return text.append(port->device);
  const std::string& named = first.start.nccl_networks;
  if (!named.empty()) return text.append("TCP on NCCL_SOCKET_IFNAME=").append(named);
  // Like NCCL, the first that is neither loopback nor docker's.
  const auto& interfaces = first.network.interfaces;
  const auto found = std::ranges::find_if(interfaces, [](const InterfaceFacts& interface) {
    return interface.kind != "loopback" && !interface.name.starts_with("docker") &&
           !interface.addresses.empty();
  });
  return text.append(found == interfaces.end() ? "no interface" : "TCP on " + found->name);
}

// What a pair of hosts should reach, in Gbit/s; 0 if neither reports its speed. Virtual interfaces
// claim one, such as 10 Gbit/s, that nothing promises.
struct LinkSpeed {
  double gbit = 0;
  double enough = 0.5;  // share of it below which something is wrong
};
LinkSpeed should_reach(const HostRanks& a, const HostRanks& b, const RunFacts& run) {
  constexpr double kOneConnection = 25;  // TCP rarely carries more through one connection
  constexpr double kEnoughIfVirtual = 0.2;
  const RdmaPort *const port_a = active_port(a), *const port_b = active_port(b);
  if (run.transport == "mpi" && a.first().start.mpi_network == "fast" && port_a && port_b)
    return {std::min(port_a->gbit, port_b->gbit)};
  const InterfaceFacts *const used_a = used_by(a), *const used_b = used_by(b);
  if (used_a == nullptr || used_b == nullptr) return {};
  const auto mbit = static_cast<double>(std::min(used_a->speed_mbit, used_b->speed_mbit));
  LinkSpeed speed{std::min(kOneConnection, mbit / 1000)};
  if (used_a->kind == "virtual" || used_b->kind == "virtual") speed.enough = kEnoughIfVirtual;
  return speed;
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace

void judge_start(const RunFacts& run, Findings& findings) {
  const std::vector<HostRanks> hosts = hosts_of(run);
  const StartFacts& start = run.ranks.front().start;
  const std::string& host = run.ranks.front().host;
  if (!start.why_apart.empty())
    findings.add(
        kError,
        host,
        "start.apart",
        "the ranks do not find each other: " + start.why_apart,
        "Training does not start",
        "srun: --mpi=pmix, or mpirun within the allocation; mpirun: that of the MPI that "
        "this program uses; without MPI: the same MASTER_ADDR and MASTER_PORT on all ranks");
  else if (run.ranks.size() == 1 && start.slurm_tasks > 1)
    findings.add(
        kWarning,
        host,
        "start.one_of_allocation",
        fmt::format("the allocation has {} tasks, but this process is alone", start.slurm_tasks),
        "Only this host was examined, and training started like this uses one rank",
        "Start with srun --mpi=pmix lockstep, or mpirun lockstep");
  std::string text = fmt::format("{} on {}, by {}",
                                 counted(run.ranks.size(), "rank"),
                                 counted(hosts.size(), "host"),
                                 start.launcher);
  if (!start.library.empty()) text += ", " + start.library;
  findings.ok("", "start.ranks", text);
  const std::string libraries =
      differences(hosts, [](const HostRanks& of) { return of.first().start.library; });
  if (!libraries.empty() && !start.library.starts_with("TCP"))
    findings.add(kError,
                 "",
                 "start.libraries",
                 "the hosts' MPI libraries differ: " + libraries,
                 "Messages may be lost or misread",
                 "Load the same MPI module on all hosts");
}

void judge_network(const RunFacts& run, Findings& findings) {
  const std::vector<HostRanks> hosts = hosts_of(run);
  const bool several = hosts.size() > 1;
  for (const HostRanks& host : hosts) {
    judge_used_interface(host, several, findings);
    judge_ports(host, run.ranks.size(), findings);
    judge_network_variables(host, findings);
    judge_rdma(host, run, several, findings);
  }
  if (!several) return;
  judge_differing_networks(hosts, findings);
  findings.ok("", "network.carriers", carriers_text(run));
  const StartFacts& start = run.ranks.front().start;
  if (run.transport == "mpi" && start.mpi_network == "tcp")
    findings.add(kWarning,
                 "",
                 "network.transport",
                 "the hosts reach each other by MPI, but not at the ports of Lockstep's own TCP",
                 "MPI carries messages over plain TCP, more slowly",
                 "Let the hosts reach each other at the ports of "
                 "/proc/sys/net/ipv4/ip_local_port_range");
}

void judge_host_pairs(const RunFacts& run, Findings& findings) {
  constexpr double kOfOthers = 0.5, kSlowMs = 5;
  if (run.pairs.empty()) return;
  const std::vector<HostRanks> hosts = hosts_of(run);
  const auto host_named = [&](const std::string& name) -> const HostRanks& {
    return *std::ranges::find(hosts, name, &HostRanks::name);
  };
  std::vector<double> rates, times;
  for (const HostPair& pair : run.pairs) {
    rates.push_back(pair.gbit);
    times.push_back(pair.round_trip_ms);
  }
  const double usual = median_of(rates);
  std::vector<HostPair> pairs = run.pairs;
  std::ranges::sort(pairs, {}, &HostPair::gbit);
  std::vector<std::string> slow, slower, late;
  double times_as_long = 1;
  for (const HostPair& pair : pairs) {
    const LinkSpeed link = should_reach(host_named(pair.a), host_named(pair.b), run);
    const std::string text = fmt::format("{} and {} {}", pair.a, pair.b, gbit_text(pair.gbit));
    if (pair.gbit < link.enough * link.gbit) {
      slow.push_back(fmt::format("{} of about {}", text, gbit_text(link.gbit)));
      times_as_long = std::max(times_as_long, link.gbit / pair.gbit);
    } else if (pair.gbit < kOfOthers * usual) {
      slower.push_back(text);
    }
    if (pair.round_trip_ms > kSlowMs)
      late.push_back(fmt::format("{} and {} {:.1f} ms", pair.a, pair.b, pair.round_trip_ms));
  }
  if (!slow.empty())
    findings.add(kWarning,
                 "",
                 "pairs.slow",
                 "pairs of hosts exchange less than their link should carry: " + first_of(slow),
                 fmt::format("Exchanges take up to {:.3g} times as long", times_as_long),
                 "Check other traffic, limits of the instance or container, the switch, and with "
                 "ethtool the negotiated speed");
  if (!slower.empty())
    findings.add(kWarning,
                 "",
                 "pairs.slower_than_others",
                 fmt::format("pairs of hosts exchange less than others, which reach {}: {}",
                             gbit_text(usual),
                             first_of(slower)),
                 "All hosts wait for them",
                 "Leave out the host that all slow pairs have in common, and check its link");
  if (!late.empty())
    findings.add(kWarning,
                 "",
                 "pairs.late",
                 "a message and its answer take long: " + first_of(late),
                 "Every exchange waits for several such messages",
                 "Use hosts in one place, with a cable");
  findings.ok("",
              "pairs.all",
              fmt::format("{} of hosts over {}: {} to {} each way, round trip {:.2g} ms",
                          counted(run.pairs.size(), "pair"),
                          run.transport,
                          gbit_text(*std::ranges::min_element(rates)),
                          gbit_text(*std::ranges::max_element(rates)),
                          median_of(times)));
}

void judge_clocks(const RunFacts& run, Findings& findings) {
  constexpr double kSkewS = 0.5;
  double largest = 0, within = 0;
  const std::vector<HostRanks> hosts = hosts_of(run);
  if (hosts.size() < 2) return;
  for (const HostRanks& host : hosts) {
    const double ahead = host.first().clock_ahead_s;
    if (std::abs(ahead) - host.first().clock_within_s > kSkewS)
      findings.add(kWarning,
                   host.name,
                   "clocks.differ",
                   fmt::format("the clock is {:.1f} s {} rank 0's",
                               std::abs(ahead),
                               ahead > 0 ? "ahead of" : "behind"),
                   "Times in logs and of files on shared disks disagree, and certificates and "
                   "Slurm credentials may be refused",
                   "Start chronyd or ntpd on the host");
    largest = std::max(largest, std::abs(ahead));
    within = std::max(within, host.first().clock_within_s);
  }
  if (largest - within <= kSkewS)
    findings.ok("", "clocks.all", fmt::format("equal within {:.2g} s", largest + within));
}

}  // namespace lockstep::doctor
