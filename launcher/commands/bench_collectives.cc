// lockstep bench collectives
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "collectives/agree/agreement.h"
#include "collectives/agree/find_topology.h"
#include "collectives/mpi/mpi_communicator.h"
#include "launcher/bench/collectives_timing.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/ranks/devices.h"
#include "launcher/ranks/transport.h"
#include "runtime/base/log.h"
#include "runtime/base/threads.h"
#include "runtime/run/threads.h"

namespace lockstep::launcher {
namespace {

struct BenchCollectivesOptions {
  CommonOptions common;
  std::vector<int64_t> sizes = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
  std::vector<std::string> collectives = {
      "all_reduce", "reduce_scatter", "all_gather", "broadcast"};
  std::vector<std::string> orders = {"TREE"};
  std::string wire = "FP32";
  int repeats = 20;
  bool no_shared_memory = false;
  std::string transport = "AUTO";
};

CommConfig::Transport transport_named(const std::string& name) {
  if (name == "MPI") return CommConfig::Transport::kMpi;
  return name == "TCP" ? CommConfig::Transport::kTcp : CommConfig::Transport::kAuto;
}

DType wire_named(const std::string& name) {
  if (name == "BF16") return DType::kBF16;
  return name == "FP16" ? DType::kF16 : DType::kF32;
}

// The name in configs and options.
const char* option_name(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return "BF16";
    case DType::kF16: return "FP16";
    default: return "FP32";
  }
}

Collective collective_named(const std::string& name) {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
    if (name == name_of(collective)) return collective;
  }
  return Collective::kBroadcast;
}

// The operations to measure, in the order of the table. FAST applies only to sums.
std::vector<CollectiveRequest> requests_of(const BenchCollectivesOptions& options) {
  std::vector<CollectiveRequest> requests;
  for (const std::string& name : options.collectives) {
    const Collective collective = collective_named(name);
    const bool sums =
        collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
    for (size_t order = 0; order < (sums ? options.orders.size() : 1); ++order) {
      for (const int64_t bytes : options.sizes)
        requests.push_back({collective,
                            sums && options.orders[order] == "FAST",
                            bytes,
                            sums ? wire_named(options.wire) : DType::kF32});
    }
  }
  return requests;
}

const char* order_of(const CollectiveRequest& request) {
  return request.fast_order ? "FAST" : "TREE";
}

Json to_json(const CollectiveTiming& timing) {
  return Json::object({{"collective", name_of(timing.request.collective)},
                       {"order", order_of(timing.request)},
                       {"dtype", option_name(timing.request.wire)},
                       {"bytes", timing.bytes},
                       {"p50_us", timing.p50_us},
                       {"p99_us", timing.p99_us},
                       {"algbw_gbytes_per_s", timing.algbw},
                       {"busbw_gbytes_per_s", timing.busbw}});
}

void print_row(const CollectiveTiming& timing) {
  fmt::print("{:16}{:>6}{:>6}{:>12}{:>12.1f}{:>12.1f}{:>10.2f}{:>10.2f}\n",
             name_of(timing.request.collective),
             order_of(timing.request),
             option_name(timing.request.wire),
             timing.bytes,
             timing.p50_us,
             timing.p99_us,
             timing.algbw,
             timing.busbw);
  std::fflush(stdout);
}

void check_fits(const run::MemoryLimits& limits,
                const exec::OpSet& ops,
                size_t bytes,
                int local_ranks) {
  const size_t free = ops.separate_memory ? limits.device_bytes
                                          : limits.host_bytes / static_cast<size_t>(local_ranks);
  if (bytes > free)
    throw MemoryError("--sizes: the largest needs {} bytes a rank, {} are free", bytes, free);
}

// Whether any of the requests is a sum in FAST order.
bool sums_fast(const std::vector<CollectiveRequest>& requests) {
  return std::ranges::any_of(requests, [](const auto& request) { return request.fast_order; });
}

// FAST order needs FP32, because the library sums floats.
void check_wire(const BenchCollectivesOptions& options) {
  if (options.wire != "FP32" && sums_fast(requests_of(options)))
    throw ConfigError("--wire: value is {}; allowed with --orders FAST: FP32", options.wire);
}

// FAST order passes the full vector to MPI, which counts elements in an int.
void check_countable(const BenchCollectivesOptions& options, int64_t max_elements) {
  if (sums_fast(requests_of(options)) && max_elements > collectives::kMpiMaxSummedElements)
    throw ConfigError(
        "--sizes: value is {}; allowed in FAST order over MPI: less than 8GiB (--transport TCP has "
        "no such limit)",
        *std::ranges::max_element(options.sizes));
}

// Rejects requests that cannot be run, and sets the number of threads. Collective.
void prepare(Session& session,
             RankDevice& device,
             const BenchCollectivesOptions& options,
             int64_t max_elements,
             size_t bytes) {
  collectives::Communicator& communicator = session.communicator();
  const int ranks = communicator.size();
  const CpuShare share = run::share_cpus(communicator);
  const exec::OpSet& ops = device.device().ops();
  collectives::run_on_all(communicator, [&] {
    require_result_path("--json", options.common.json);
    check_wire(options);
    if (ranks == 1)
      throw ConfigError("ranks: value is {}; allowed: at least 2, as with mpirun -n 2", ranks);
    if (std::string_view(communicator.name()) == "mpi" && !ops.separate_memory)
      check_countable(options, max_elements);
    check_fits(device.limits(), ops, bytes, session.local_ranks());
    set_compute_threads(share.cpus);
  });
}

// The config for which the device is opened: sums in TREE order, unless all are in FAST order.
RunConfig config_of(const std::vector<CollectiveRequest>& requests) {
  RunConfig config;
  config.execution.precision = Precision::kFp32;  // of the sums
  const bool tree =
      std::ranges::any_of(requests, [](const auto& request) { return !request.fast_order; });
  if (!tree) config.comm.order = CommConfig::Order::kFast;
  return config;
}

void print_head(int ranks, int nodes, const std::string& device, const std::string& transport) {
  fmt::print("{} ranks on {} node(s), {}, vectors over {}\n", ranks, nodes, device, transport);
  fmt::print("{:16}{:>6}{:>6}{:>12}{:>12}{:>12}{:>10}{:>10}\n",
             "collective",
             "order",
             "dtype",
             "bytes",
             "p50 us",
             "p99 us",
             "algbw",
             "busbw");
}

ExitCode bench_collectives(Session& session, const BenchCollectivesOptions& options) {
  const int ranks = session.communicator().size();
  init_log(options.common.log_level, session.communicator().rank(), ranks);
  RankDevice device(session, options.common, choose_device(session, options.common));
  const exec::OpSet& ops = device.device().ops();
  collectives::Topology topology = collectives::find_topology(session.communicator());
  choose_transport(session, transport_named(options.transport), ops);
  collectives::Communicator& communicator = session.communicator();
  const std::vector<CollectiveRequest> requests = requests_of(options);
  int64_t max_elements = 0;
  for (const CollectiveRequest& request : requests)
    max_elements = std::max(max_elements, elements_of(request, ranks));
  const size_t bytes = collective_bench_bytes(max_elements, topology) + ops.workspace_bytes;
  prepare(session, device, options, max_elements, bytes);
  device.open(config_of(requests), {}, topology);
  collectives::run_on_all(communicator, [&] { device.backend().reserve(bytes); });
  // In shared memory nothing travels, so 16 bits would save nothing.
  const bool sends = options.no_shared_memory || options.wire != "FP32";
  const std::unique_ptr<collectives::NodeMemory> node =
      ops.separate_memory || sends ? nullptr
                                   : collectives::NodeMemory::join(communicator, topology);
  topology.shares_memory = node != nullptr;
  CollectiveBench bench(
      {device.slices(), communicator, node.get()}, device.backend(), topology, max_elements);
  const bool is_root = communicator.rank() == 0;
  const std::string transport = name_of_transport(device.slices(), topology);
  const std::string description = device.device().description();
  if (is_root) print_head(ranks, topology.nodes, description, transport);
  Json json;
  json["ranks"] = ranks;
  json["nodes"] = topology.nodes;
  json["device"] = description;
  json["transport"] = transport;
  json["library"] = session.library();
  json["repeats"] = options.repeats;
  for (const CollectiveRequest& request : requests) {
    const CollectiveTiming timing = bench.time(request, options.repeats);
    if (is_root) print_row(timing);
    json["timings"].push_back(to_json(timing));
  }
  write_result(session.communicator(), options.common.json, json);
  return ExitCode::kOk;
}

}  // namespace

CommandSpec bench_collectives_command() {
  auto options = std::make_shared<BenchCollectivesOptions>();
  CommandSpec command{
      .name = "collectives",
      .help =
          "Check and time the exchanges among ranks; start it with several ranks, as for train"};
  add_device_options(command, options->common);
  add_output_options(command, options->common);
  command.add(
      "--sizes",
      &options->sizes,
      "Bytes of the vector as it travels, such as 4KiB,1MiB; by default 4KiB to 64MiB",
      {.with_commas = true, .with_units = true, .allowed = WholeNumbers{4, int64_t{64} << 30}});
  command.add("--collectives",
              &options->collectives,
              "Operations to measure; by default all",
              {.with_commas = true, .allowed = OneOf{options->collectives}});
  command.add("--orders",
              &options->orders,
              "Orders of the sums; by default TREE",
              {.with_commas = true, .allowed = OneOf{{"TREE", "FAST"}}});
  command.add(
      "--wire",
      &options->wire,
      "Type to which sums in TREE order are rounded and in which they travel: FP32, BF16 or FP16, "
      "as comm.wire_dtype; with 16 bits everything is sent, as with --no-shared-memory",
      {.show_default = true, .allowed = OneOf{{"FP32", "BF16", "FP16"}}});
  command.add("--repeats",
              &options->repeats,
              "Measurements of each operation",
              {.show_default = true, .allowed = WholeNumbers{1, 100000}});
  command.add("--no-shared-memory",
              &options->no_shared_memory,
              "Send everything, also between ranks that could share memory");
  command.add("--transport",
              &options->transport,
              "Transport of the messages under mpirun: MPI, TCP or AUTO, as comm.transport",
              {.show_default = true, .allowed = OneOf{{"AUTO", "MPI", "TCP"}}});
  command.footer =
      "algbw is bytes / p50 in GB/s. busbw counts only what each of n ranks must send: 2 (n-1)/n "
      "of the vector in an all_reduce, (n-1)/n in a reduce_scatter or an all_gather, all of it in "
      "a broadcast. Times are those of the slowest rank; with fewer than 100 repeats p99 is the "
      "longest. Each rank writes its vector before each repetition, and each result is checked, "
      "element by element, on numbers whose sums are exact.\n\nEvery rank has a vector of floats. "
      "An all_reduce leaves the sum in all of them; if ranks share memory on several nodes, in one "
      "vector for each node, as an all_gather does and as training does with parameters. A "
      "training step runs a reduce_scatter under its backward pass and an all_gather under the "
      "next forward pass.\n\nSums are sums of floats for any execution.precision. With --wire BF16 "
      "or FP16 terms and sums are rounded to that type, and the same bytes hold twice as many of "
      "them: bytes, algbw and busbw count what travels, and the times include the conversions and, "
      "as in a step, the squares for the norm. An all_reduce is then that of ZeRO stage 0. Gathers "
      "and broadcasts move bytes; for parameters in BF16 or FP16 read the row with half as many "
      "bytes. Their dtype, also in --json, is FP32.";
  command.run = [options](Session& session) { return bench_collectives(session, *options); };
  return command;
}

}  // namespace lockstep::launcher
