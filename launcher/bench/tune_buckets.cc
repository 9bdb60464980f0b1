#include "launcher/bench/tune_buckets.h"

#include <algorithm>
#include <optional>

#include "collectives/agreement.h"
#include "launcher/bench/bucket_record.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/train/trainer.h"

namespace lockstep {
namespace {

// Steps of a trial: the first ones fill caches and the loader's ring, and record CUDA graphs.
constexpr int64_t kWarmSteps = 2;
constexpr int64_t kTimedSteps = 5;

int64_t steps_of_trial(const RunConfig& config) {
  return std::min(kWarmSteps + kTimedSteps, config.train.steps);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Plans for buckets of this size; false, on all ranks, where that does not fit into memory.
bool plan_for(const RunStart& start, Assembly& assembly, double bucket_mib) {
  try {
    run_on_all(start.session.communicator(), [&] {
      plan_again(assembly, bucket_mib);
      check_memory(assembly, start.session.local_ranks(), start.device.limits());
    });
  } catch (const AgreedError& error) {
    if (error.code() != ExitCode::kMemory) throw;
    return false;
  }
  return true;
}

// Of the run as it is planned, from the first one on, by step; fewer where the ranks are asked to
// stop meanwhile. Throws AgreedError where there is no memory.
std::vector<double> train_steps(const RunStart& start,
                                const Assembly& assembly,
                                int64_t steps,
                                std::unique_ptr<NodeMemory>& node) {
  Communicator& communicator = start.session.communicator();
  if (assembly.plan.topology.shares_memory) {
    node = NodeMemory::join(communicator, start.topology);
    if (node == nullptr) throw AgreedError(ExitCode::kMemory, "no memory to share");
    allocate_shared(*node, assembly.plan);
  }
  start.device.open(assembly.config, assembly.training, assembly.plan.topology);
  const RunParts parts =
      parts_of(assembly, communicator, start.device.slices(), start.device.backend(), node.get());
  std::unique_ptr<Trainer> trainer;
  run_on_all(communicator, [&] { trainer = std::make_unique<Trainer>(parts); });
  trainer->start("none");
  std::vector<double> times = trainer->time_steps(steps);
  run_on_all(communicator, [] {});  // nobody reads a rank's memory any more
  return times;
}

struct Timing {
  bool fits = true;               // into memory
  std::optional<double> step_ms;  // nothing where the ranks are asked to stop meanwhile
};

Timing time_steps(const RunStart& start, const Assembly& assembly) {
  const int64_t steps = steps_of_trial(assembly.config);
  std::unique_ptr<NodeMemory> node;
  std::vector<double> times;
  Timing timing;
  try {
    times = train_steps(start, assembly, steps, node);
  } catch (const AgreedError& error) {
    if (error.code() != ExitCode::kMemory) throw;
    timing.fits = false;
  }
  start.device.close();
  node.reset();
  // What a rank still has counts as taken for the others.
  run_on_all(start.session.communicator(), [] {});
  if (static_cast<int64_t>(times.size()) < steps) return timing;
  times.erase(times.begin(), times.begin() + std::min(kWarmSteps, steps - 1));
  timing.step_ms = median(times);
  return timing;
}

// The trials of all candidates that give other buckets than those before; nothing where the ranks
// are asked to stop before the last one.
std::optional<std::vector<BucketTrial>> try_sizes(const RunStart& start, Assembly& assembly) {
  std::vector<BucketTrial> trials;
  std::vector<std::vector<Range>> tried;
  assembly.config.output.timeline = false;
  for (const double bucket_mib : bucket_candidates(assembly.config.comm.bucket_mib)) {
    if (!plan_for(start, assembly, bucket_mib)) continue;
    const std::vector<Range>& buckets = assembly.plan.buckets;
    if (std::find(tried.begin(), tried.end(), buckets) != tried.end()) continue;
    tried.push_back(buckets);
    const Timing timing = time_steps(start, assembly);
    if (!timing.fits) continue;
    if (!timing.step_ms) return std::nullopt;
    trials.push_back({bucket_mib, buckets.size(), *timing.step_ms});
  }
  return trials;
}

// Whether the run's folder has checkpoints; where it has none, it has no record either from here
// on: that would be of another run.
bool has_checkpoints(const RunStart& start, const Assembly& assembly) {
  std::string checkpoints;
  run_on_root(start.session.communicator(), [&] {
    const std::filesystem::path folder = assembly.config.output.run_dir;
    if (!list_checkpoints(folder / "checkpoints").empty()) {
      checkpoints = "some";
    } else if (start.resume == "none" || start.resume == "auto") {
      remove_bucket_record(folder);
    }
  });
  return !broadcast_text(start.session.communicator(), checkpoints).empty();
}

// Rank 0's choice; `own` is the config's.
double tune(const RunStart& start, Assembly& assembly, double own) {
  const double start_ms = now_ms();
  log_info("comm.tune_buckets: trying sizes of buckets, {} steps of the run with each",
           steps_of_trial(assembly.config));
  const auto trials = try_sizes(start, assembly);
  if (!trials || trials->empty()) {
    log_info("comm.tune_buckets: {}, comm.bucket_mib stays {:g}",
             trials ? "no size fits into memory" : "stopped before all sizes were tried",
             own);
    return own;
  }
  const double fastest = std::min_element(trials->begin(),
                                          trials->end(),
                                          [](const BucketTrial& a, const BucketTrial& b) {
                                            return a.step_ms < b.step_ms;
                                          })
                             ->bucket_mib;
  run_on_root(start.session.communicator(), [&] {
    const std::filesystem::path folder = assembly.config.output.run_dir;
    try {
      write_bucket_record(folder, {fastest, start.session.communicator().size(), *trials});
    } catch (const IoError& error) {
      log_warn("{}; the run goes on, and a restart times the sizes again", error.what());
    }
    log_info("comm.tune_buckets: milliseconds a step with buckets of {}; tried in {:.1f} s",
             to_text(*trials),
             (now_ms() - start_ms) / 1000);
    log_info("comm.bucket_mib is {:g} from here on, recorded in {}",
             fastest,
             bucket_record_path(folder).string());
  });
  return fastest;
}

// Rank 0's; what the folder has on record, or else the config's.
double recorded(const RunStart& start, const Assembly& assembly, double own) {
  double bucket_mib = own;
  run_on_root(start.session.communicator(), [&] {
    const std::filesystem::path folder = assembly.config.output.run_dir;
    const std::optional<BucketRecord> record = read_bucket_record(folder);
    if (record) bucket_mib = record->bucket_mib;
    log_info("comm.bucket_mib is {:g}: {}",
             bucket_mib,
             record
                 ? "recorded in " + bucket_record_path(folder).string()
                 : "the run goes on from a checkpoint, and its folder has no other size on record");
  });
  return bucket_mib;
}

}  // namespace

std::vector<double> bucket_candidates(double own) {
  std::vector<double> sizes = {1, 4, 12, 25, 50, 100};
  if (std::find(sizes.begin(), sizes.end(), own) == sizes.end()) sizes.push_back(own);
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

BucketChoice choose_bucket_mib(const RunStart& start, Assembly& assembly) {
  Communicator& communicator = start.session.communicator();
  const double own = assembly.config.comm.bucket_mib;
  const bool begun = has_checkpoints(start, assembly);
  if (communicator.size() == 1) {
    log_info("comm.tune_buckets: one rank exchanges nothing, comm.bucket_mib stays {:g}", own);
    return {own};
  }
  if (begun && start.resume == "none") return {own};  // which is refused
  const bool anew = !begun && (start.resume == "none" || start.resume == "auto");
  double bucket_mib = anew ? tune(start, assembly, own) : recorded(start, assembly, own);
  communicator.broadcast(reinterpret_cast<std::byte*>(&bucket_mib), sizeof(bucket_mib), 0);
  return {bucket_mib, anew};
}

}  // namespace lockstep
