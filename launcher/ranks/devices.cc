#include "launcher/ranks/devices.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "collectives/agree/agreement.h"
#include "collectives/agree/watchdog_error.h"
#include "collectives/watch/recorded_communicator.h"
#include "launcher/cuda/load.h"
#include "launcher/ranks/gpu_binding.h"
#include "launcher/ranks/gpu_choice.h"
#include "launcher/ranks/gpu_places.h"
#include "launcher/ranks/host_memory.h"
#include "launcher/ranks/session.h"
#include "runtime/base/checksum.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/host.h"
#include "runtime/base/json.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/base/time.h"
#include "runtime/config/hardware.h"
#include "runtime/cpu/device.h"
#include "runtime/cuda/planned_ops.h"
#include "runtime/run/defaults.h"

namespace lockstep::launcher {
namespace {

constexpr const char* kNoDriver =
    "no NVIDIA driver is loaded (in a container: is it started with --gpus all?)";

// The number of GPUs that NVIDIA's driver has for this process; nothing if it is not loaded.
std::optional<int> count_gpus_of_driver() {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return std::nullopt;
  using Init = int (*)(unsigned);
  using Count = int (*)(int*);
  const auto init = reinterpret_cast<Init>(::dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<Count>(::dlsym(driver, "cuDeviceGetCount"));
  int gpus = 0;
  const bool known = init != nullptr && count != nullptr && init(0) == 0 && count(&gpus) == 0;
  return known ? gpus : 0;
}

// The GPUs that each rank sees.
std::vector<RankGpus> gather_gpus(Session& session, const cuda::GpuProbe& probe) {
  Json mine = Json::object({{"host", host_identity()}, {"local_rank", session.local_rank()}});
  for (const cuda::GpuDescription& gpu : probe.gpus) mine["gpus"].push_back(gpu.uuid);
  std::vector<RankGpus> ranks;
  for (const std::string& text : collectives::gather_texts(session.communicator(), mine.dump())) {
    const Json of_rank = Json::parse(text);
    RankGpus& rank = ranks.emplace_back();
    rank.host = of_rank["host"].get<std::string>();
    rank.local_rank = of_rank["local_rank"].get<int>();
    for (const Json& gpu : of_rank["gpus"]) rank.gpus.push_back(gpu.get<std::string>());
  }
  return ranks;
}

std::vector<GpuPlace> gather_places(collectives::Communicator& communicator, const GpuPlace& mine) {
  const Json json = Json::object({{"host", mine.host},
                                  {"ordinal", mine.ordinal},
                                  {"pci_bus_id", mine.pci_bus_id},
                                  {"binding", mine.binding},
                                  {"links", mine.links}});
  std::vector<GpuPlace> places;
  for (const std::string& text : collectives::gather_texts(communicator, json.dump())) {
    const Json of_rank = Json::parse(text);
    places.push_back({of_rank["host"].get<std::string>(),
                      of_rank["ordinal"].get<int>(),
                      of_rank["pci_bus_id"].get<std::string>(),
                      of_rank["binding"].get<std::string>(),
                      of_rank["links"].get<std::string>()});
  }
  return places;
}

// Logs where the ranks' threads run, and what connects their GPUs.
void log_places(collectives::Communicator& communicator,
                const cuda::Plugin& plugin,
                GpuPlace mine) {
  const std::vector<GpuPlace> places = gather_places(communicator, mine);
  const auto first = std::ranges::find(places, mine.host, &GpuPlace::host);
  if (first - places.begin() == communicator.rank())
    mine.links = describe_links(names_of_gpus(places, mine.host),
                                plugin.find_links(gpus_of_host(places, mine.host)));
  for (const std::string& line : describe_places(gather_places(communicator, mine)))
    log_info("{}", line);
}

// "A on rank 0, 2; B on rank 1" if the ranks' texts differ; else empty.
std::string differences(collectives::Communicator& communicator, const std::string& mine) {
  const std::vector<std::string> texts = collectives::gather_texts(communicator, mine);
  std::map<std::string, std::string> ranks;  // by text
  for (size_t r = 0; r < texts.size(); ++r) {
    append_item(ranks[texts[r]], std::to_string(r));
  }
  std::string all;
  for (const auto& [text, list] : ranks)
    append_item(all, fmt::format("{} on rank {}", text, list), "; ");
  return ranks.size() == 1 ? "" : all;
}

// Values may differ between ranks: by LOCKSTEP_DEVICE on their hosts, or by `mpirun ... : ...`.
void require_same_device_option(collectives::Communicator& communicator,
                                const std::string& wanted) {
  const std::string text = differences(communicator, wanted);
  if (text.empty()) return;
  throw collectives::AgreedError(
      ExitCode::kUsage,
      fmt::format("--device (LOCKSTEP_DEVICE): value is {}; allowed: the same on all ranks", text));
}

// Another model of GPU, another library or other units of the CPU compute other bits, so that the
// run's bits would depend on which rank computes which lane.
void require_same_bits(collectives::Communicator& communicator,
                       const exec::Device& device,
                       const std::string& bits,
                       const RunConfig& config) {
  const std::string text = differences(communicator, bits);
  if (text.empty()) return;
  const std::string what =
      device.ops().separate_memory ? "GPUs and libraries" : "units of the processors";
  std::string choice;  // of the first rank that has one
  for (const std::string& of_rank :
       collectives::gather_texts(communicator, device.choice_of_bits())) {
    if (choice.empty()) choice = of_rank;
  }
  if (config.comm.order == CommConfig::Order::kTree)
    throw collectives::AgreedError(
        ExitCode::kUsage,
        fmt::format("{} must be the same on all ranks, but are {}; {}comm.order FAST trains on "
                    "them, with bits of its own",
                    what,
                    text,
                    choice.empty() ? "" : choice + "; "));
  if (communicator.rank() == 0) log_warn("{} differ: {}", what, text);
}

// Warns if execution.bf16x3, which is meant to be fast, is slow on the processors of some ranks.
void warn_of_slow_products(collectives::Communicator& communicator) {
  const std::vector<std::string> ranks =
      collectives::gather_texts(communicator, cpu::has_bf16_unit() ? "" : "without");
  const auto without = std::ranges::count(ranks, "without");
  if (without == 0 || communicator.rank() != 0) return;
  const auto first = std::ranges::find(ranks, "without") - ranks.begin();
  log_warn(
      "execution.bf16x3: {} of {} ranks, the first is rank {}, cannot use AMX: the same weights, "
      "but several times slower than with false (a processor that has it shows amx_bf16 in lscpu; "
      "then the kernel, 5.16 or newer, or the container must allow arch_prctl)",
      without,
      ranks.size(),
      first);
}

// Peak rates of a GPU by its driver's name, for MFU.
cuda::GpuPeaks peaks_of(const std::string& driver_name) {
  const Hardware* const gpu = config::find_gpu(driver_name);
  if (gpu == nullptr) return {};
  constexpr double kTera = 1e12;
  return {.fp32 = gpu->fp32_tflops * kTera,
          .tf32 = gpu->tf32_tflops * kTera,
          .bf16 = gpu->bf16_tflops * kTera,
          .fp16 = gpu->fp16_tflops * kTera};
}

}  // namespace

FoundGpus find_gpus(const std::string& device) {
  FoundGpus found;
  // With auto, CUDA's libraries are not even looked for if there is no driver: they are large.
  const std::optional<int> gpus = device == "auto" ? count_gpus_of_driver() : 0;
  if (!gpus) {
    found.probe.why_none = kNoDriver;
    return found;
  }
  found.has_driver = *gpus > 0;
  found.plugin = load_cuda_plugin(found.probe.why_none);
  if (found.plugin != nullptr) {
    found.probe = found.plugin->probe();
  } else if (*gpus > 0) {
    found.probe.why_none = fmt::format(
        "{} NVIDIA GPU{} here, but {}", *gpus, *gpus == 1 ? " is" : "s are", found.probe.why_none);
  }
  return found;
}

std::unique_ptr<exec::Device> choose_device(Session& session,
                                            const CommonOptions& options,
                                            bool trains) {
  collectives::Communicator& communicator = session.communicator();
  require_same_device_option(communicator, options.device);
  if (options.device == "cpu") return cpu::make_device();
  const FoundGpus found = find_gpus(options.device);
  const std::vector<std::string> reasons =
      collectives::gather_texts(communicator, found.probe.why_none);
  const auto without =
      std::ranges::find_if(reasons, [](const auto& text) { return !text.empty(); });
  if (without != reasons.end()) {
    const auto rank = without - reasons.begin();
    const std::string where = reasons.size() > 1 ? fmt::format("rank {}: ", rank) : "";
    if (options.device == "cuda")
      throw collectives::AgreedError(
          ExitCode::kUsage,
          fmt::format("--device (LOCKSTEP_DEVICE): value is cuda, but {}{}; allowed here: cpu",
                      where,
                      *without));
    // Other commands need no GPU, and a machine without a driver is not expected to have one.
    if (communicator.rank() == 0 && (trains || *without != kNoDriver))
      log_info("running on the CPU: {}{}", where, *without);
    return cpu::make_device();
  }
  const std::vector<RankGpus> ranks = gather_gpus(session, found.probe);
  std::unique_ptr<exec::Device> device;
  GpuPlace place;
  collectives::run_on_all(communicator, [&] {
    const int chosen = choose_gpu(ranks, communicator.rank(), options.share_gpu);
    const cuda::GpuDescription& gpu = found.probe.gpus[static_cast<size_t>(chosen)];
    place = {host_identity(), gpu.ordinal, gpu.pci_bus_id, bind_to_gpu(gpu.pci_bus_id), {}};
    device = found.plugin->make_device(
        {.ordinal = gpu.ordinal, .share_gpu = options.share_gpu, .peaks = peaks_of(gpu.name)});
  });
  if (trains) log_places(communicator, *found.plugin, place);
  return device;
}

bool gpu_here(run::MemoryLimits& limits) {
  const FoundGpus found = find_gpus("cuda");
  if (found.probe.gpus.empty()) return false;
  const std::unique_ptr<exec::Device> device =
      found.plugin->make_device({.ordinal = found.probe.gpus.front().ordinal});
  limits.device_bytes = device->free_bytes();
  limits.device = device->description();
  return true;
}

const exec::OpSet& ops_to_plan_for(const CommonOptions& options) {
  static const std::unique_ptr<exec::Device> cpu = cpu::make_device();
  if (options.device == "cpu") return cpu->ops();
  const bool gpu = options.device == "cuda" || find_gpus(options.device).probe.why_none.empty();
  return gpu ? cuda::planned_ops() : cpu->ops();
}

std::string bits_of_run(const exec::Device& device,
                        const ExecutionConfig& execution,
                        const exec::AlgorithmFile& algorithms) {
  const std::string bits = device.bits(run::compute_type(execution.precision));
  return algorithms.text.empty()
             ? bits
             : fmt::format("{}, algorithms {}", bits, to_hex(hash_text(algorithms.text)));
}

RankDevice::RankDevice(Session& session,
                       const CommonOptions& options,
                       std::unique_ptr<exec::Device> device)
    : session_(session), options_(options), device_(std::move(device)) {}

RankDevice::~RankDevice() { close(); }

void RankDevice::close() {
  slices_ = nullptr;
  recorded_.reset();
  device_->disconnect();
  backend_.reset();
}

run::MemoryLimits RankDevice::limits() const {
  return {available_memory_bytes(), device_->free_bytes(), device_->description()};
}

exec::BackendRequest RankDevice::request_of(const RunConfig& config) const {
  return {.tf32 = config.execution.tf32,
          .compute = run::compute_type(config.execution.precision),
          .record_repeated_work = !options_.eager,
          .algorithms = algorithms_,
          .lanes_per_pass = config.execution.lanes_per_pass};
}

std::string RankDevice::time_algorithms(const RunConfig& config,
                                        std::span<const graph::Graph* const> graphs) {
  return device_->time_algorithms(
      request_of(config), graphs, [] { FlightRecorder::here().beat(); });
}

void RankDevice::open(const RunConfig& config,
                      const graph::Graph& training,
                      const collectives::Topology& topology) {
  collectives::Communicator& communicator = session_.communicator();
  require_same_bits(communicator, *device_, bits(config), config);
  collectives::run_on_all(communicator, [&] {
    backend_ = device_->make_backend(request_of(config));
    backend_->warm_up(training);
  });
  collectives::Communicator& slices = device_->connect(
      communicator,
      *backend_,
      topology,
      {.first_timeout_s = seconds_or_never(config.comm.files_timeout_s),
       .timeout_s = seconds_or_never(config.comm.timeout_s),
       // A step on a GPU may take minutes: the GPU's communicator detects late ranks, not the
       // watchdog.
       .while_waiting =
           [] {
             collectives::throw_watchdog_error();
             FlightRecorder::here().beat();
           },
       .watch_device =
           [](const std::atomic<uint64_t>* word) { FlightRecorder::here().watch_device(word); },
       .waited = [](double seconds,
                    bool late) { FlightRecorder::here().wait_for_device(seconds, late); }});
  recorded_ = &slices == &communicator ? nullptr : collectives::make_recorded(slices);
  slices_ = recorded_ ? recorded_.get() : &slices;
  if (config.execution.bf16x3 && !std::exchange(warned_, true)) warn_of_slow_products(communicator);
}

}  // namespace lockstep::launcher
