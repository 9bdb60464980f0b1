#include "launcher/bench/tune_buckets.h"

#include <algorithm>
#include <optional>

#include "collectives/agree/agreement.h"
#include "launcher/bench/bucket_record.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/train/trainer.h"

namespace lockstep::launcher {
namespace {

// Steps of a trial: the first ones fill caches and the loader's ring, and record CUDA graphs.
constexpr int64_t kWarmSteps = 2;
constexpr int64_t kTimedSteps = 5;

int64_t steps_of_trial(const RunConfig& config) {
  return std::min(kWarmSteps + kTimedSteps, config.train.steps);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// The run with buckets of this size; nothing, on all ranks, if it does not fit into memory then.
std::optional<run::PreparedRun> trial_of(RankContext& rank,
                                         const run::PreparedRun& prepared,
                                         double bucket_mib) {
  run::PreparedRun trial;
  try {
    collectives::run_on_all(rank.communicator(), [&] {
      trial = run::with_buckets(prepared, bucket_mib);
      trial.recorded.output.timeline = false;
      rank.require_memory(trial);
    });
  } catch (const collectives::AgreedError& error) {
    if (error.code() != ExitCode::kMemory) throw;
    return std::nullopt;
  }
  return trial;
}

// Milliseconds of each step of the run as it is planned; fewer than `steps` if the ranks are asked
// to stop meanwhile. Throws AgreedError if there is no memory.
std::vector<double> train_steps(RankContext& rank,
                                const run::PreparedRun& trial,
                                int64_t steps,
                                std::unique_ptr<collectives::NodeMemory>& node) {
  collectives::Communicator& communicator = rank.communicator();
  if (trial.plan.sharding.topology.shares_memory) {
    node = collectives::NodeMemory::join(communicator, rank.placed);
    if (node == nullptr) throw collectives::AgreedError(ExitCode::kMemory, "no memory to share");
    train::allocate_shared(*node, trial.plan);
  }
  rank.device.open(trial.recorded, trial.graphs->training, trial.plan.sharding.topology);
  const train::RunContext context =
      run::context_of(trial, communicator, rank.device.slices(), rank.device.backend(), node.get());
  std::unique_ptr<train::Trainer> trainer;
  collectives::run_on_all(communicator,
                          [&] { trainer = std::make_unique<train::Trainer>(context); });
  trainer->start("none");
  std::vector<double> times = trainer->time_steps(steps);
  collectives::run_on_all(communicator,
                          [] {});  // a barrier: no rank reads another's memory any more
  return times;
}

struct Timing {
  bool fits = true;               // into memory
  std::optional<double> step_ms;  // nothing if the ranks are asked to stop meanwhile
};

Timing time_steps(RankContext& rank, const run::PreparedRun& trial) {
  const int64_t steps = steps_of_trial(trial.config);
  std::unique_ptr<collectives::NodeMemory> node;
  std::vector<double> times;
  Timing timing;
  try {
    times = train_steps(rank, trial, steps, node);
  } catch (const collectives::AgreedError& error) {
    if (error.code() != ExitCode::kMemory) throw;
    timing.fits = false;
  }
  rank.device.close();
  node.reset();
  // Memory that a rank has not freed yet counts as taken for the others.
  collectives::run_on_all(rank.communicator(), [] {});
  if (static_cast<int64_t>(times.size()) < steps) return timing;
  times.erase(times.begin(), times.begin() + std::min(kWarmSteps, steps - 1));
  timing.step_ms = median(times);
  return timing;
}

// The trials of all candidates that give other buckets than those before; nothing if the ranks are
// asked to stop before the last one.
std::optional<std::vector<BucketTrial>> try_sizes(RankContext& rank,
                                                  const run::PreparedRun& prepared) {
  std::vector<BucketTrial> trials;
  std::vector<std::vector<collectives::Range>> tried;
  for (const double bucket_mib : bucket_candidates(prepared.defaults.bucket_mib)) {
    const std::optional<run::PreparedRun> trial = trial_of(rank, prepared, bucket_mib);
    if (!trial) continue;
    const std::vector<collectives::Range>& buckets = trial->plan.layout.buckets;
    if (std::ranges::find(tried, buckets) != tried.end()) continue;
    tried.push_back(buckets);
    const Timing timing = time_steps(rank, *trial);
    if (!timing.fits) continue;
    if (!timing.step_ms) return std::nullopt;
    trials.push_back({bucket_mib, buckets.size(), *timing.step_ms});
  }
  return trials;
}

// Whether the run's folder has checkpoints. If it has none, its record is of another run and is
// removed.
bool has_checkpoints(RankContext& rank,
                     const run::PreparedRun& prepared,
                     const std::string& resume) {
  std::string checkpoints;
  collectives::run_on_root(rank.communicator(), [&] {
    const std::filesystem::path folder = prepared.config.output.run_dir;
    if (!checkpoint::list_checkpoints(folder / "checkpoints").empty()) {
      checkpoints = "some";
    } else if (resume == "none" || resume == "auto") {
      remove_bucket_record(folder);
    }
  });
  return !collectives::broadcast_text(rank.communicator(), checkpoints).empty();
}

// Times the candidates and returns the fastest. Only rank 0's result counts.
double tune(RankContext& rank, const run::PreparedRun& prepared) {
  const double planned = prepared.defaults.bucket_mib;
  const double start_ms = now_ms();
  log_info("comm.tune_buckets: trying sizes of buckets, {} steps of the run with each",
           steps_of_trial(prepared.config));
  const auto trials = try_sizes(rank, prepared);
  if (!trials || trials->empty()) {
    log_info("comm.tune_buckets: {}, comm.bucket_mib stays {:g}",
             trials ? "no size fits into memory" : "stopped before all sizes were tried",
             planned);
    return planned;
  }
  const double fastest = std::ranges::min_element(*trials, {}, &BucketTrial::step_ms)->bucket_mib;
  collectives::run_on_root(rank.communicator(), [&] {
    const std::filesystem::path folder = prepared.config.output.run_dir;
    try {
      write_bucket_record(folder, {fastest, rank.communicator().size(), *trials});
    } catch (const IoError& error) {
      log_warn("{}; the run continues, and a restart times the sizes again", error.what());
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

// The size that the folder has on record or, if there is none, the planned one. Only rank 0's
// result counts.
double recorded(RankContext& rank, const run::PreparedRun& prepared) {
  double bucket_mib = prepared.defaults.bucket_mib;
  collectives::run_on_root(rank.communicator(), [&] {
    const std::filesystem::path folder = prepared.config.output.run_dir;
    const std::optional<BucketRecord> record = read_bucket_record(folder);
    if (record) bucket_mib = record->bucket_mib;
    log_info(
        "comm.bucket_mib is {:g}: {}",
        bucket_mib,
        record ? "recorded in " + bucket_record_path(folder).string()
               : "the run continues from a checkpoint, and its folder has no other size on record");
  });
  return bucket_mib;
}

}  // namespace

double choose_bucket_mib(RankContext& rank,
                         const run::PreparedRun& prepared,
                         const std::string& resume) {
  collectives::Communicator& communicator = rank.communicator();
  const double planned = prepared.defaults.bucket_mib;
  const bool begun = has_checkpoints(rank, prepared, resume);
  if (communicator.size() == 1) {
    log_info("comm.tune_buckets: one rank exchanges nothing, comm.bucket_mib stays {:g}", planned);
    return planned;
  }
  if (begun && resume == "none") return planned;  // the trainer rejects this start
  const bool is_new = !begun && (resume == "none" || resume == "auto");
  double bucket_mib = is_new ? tune(rank, prepared) : recorded(rank, prepared);
  communicator.broadcast(reinterpret_cast<std::byte*>(&bucket_mib), sizeof(bucket_mib), 0);
  return bucket_mib;
}

}  // namespace lockstep::launcher
