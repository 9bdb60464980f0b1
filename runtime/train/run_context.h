#pragma once
// What a run works on: runtime/run prepares it; the trainer, the evaluator and the checkpointer use
// it.

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "collectives/communicator.h"
#include "collectives/shm/node_memory.h"
#include "runtime/config/model_traits.h"
#include "runtime/data/dataset.h"
#include "runtime/data/loader.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/device_state.h"
#include "runtime/metrics/prometheus.h"
#include "runtime/plan/plan.h"
#include "runtime/train/folder/run_folder.h"

namespace lockstep::train {

// Borrowed references; everything outlives the trainer.
struct RunContext {
  const RunConfig& config;                  // resolved, as the run records it
  collectives::Communicator& communicator;  // for decisions and small numbers, on the host
  collectives::Communicator& slices;        // for gradients and parameters, in the backend's memory
  collectives::NodeMemory*
      node;  // the memory that ranks share, as planned; null if they share nothing
  exec::Backend& backend;
  const plan::RunGraphs& graphs;
  const plan::Plan& plan;
  const data::OpenedData& data;
  std::filesystem::path run_dir;
  int64_t train_ring_batches = 2;
  int64_t eval_ring_batches = 2;
  double flops_per_sample = 0;   // forward and backward, for MFU
  double predicted_step_ms = 0;  // by the forecast made before the start; 0: none
  config::ModelTraits model = {};
  RunFolder* folder = nullptr;              // on rank 0, if the run writes one
  metrics::PrometheusPage* page = nullptr;  // on rank 0, if the run serves its metrics
  exec::DeviceMonitor* monitor = nullptr;   // of the rank's device; null on all ranks or on none
  std::filesystem::path powercap = "/sys/class/powercap";  // other than that only in tests
  // Device::bits(), if a checkpoint's are to be compared with them, and Device::choice_of_bits().
  std::optional<std::string> bits = {};
  std::string choice_of_bits = {};

  // The ranges of the flat buffers that this rank sums, saves and hashes.
  std::vector<collectives::Range> owned() const { return owned_of(plan.layout.buckets); }
  // The same ranges, followed by those of frozen parameters.
  std::vector<collectives::Range> owned_parameters() const {
    return owned_of(plan.layout.all_buckets());
  }
  // The ranges that this rank updates.
  std::vector<collectives::Range> updated() const {
    return plan.sharding.shards_optimizer() ? owned() : plan.layout.buckets;
  }
  // Whether this rank writes its parameters: if the ranks of a node share them, only one writes,
  // unless each has fp32 master weights of its own.
  bool writes_parameters() const {
    return !plan.sharding.shares_parameters() || plan.layout.compute != DType::kF32 ||
           node->index() == 0;
  }
  collectives::NodeMemory* parameters_node() const {
    return plan.sharding.shares_parameters() ? node : nullptr;
  }
  // Throws CheckpointError if the run folder is not this run's any more. On rank 0.
  void require_folder() const {
    if (folder != nullptr) folder->check();
  }
  // Throws CheckpointError if `launch` has given up this start. On any rank and thread.
  void check_generation() const { lockstep::train::check_generation(run_dir); }
  std::vector<collectives::Range> owned_of(const std::vector<collectives::Range>& buckets) const {
    return collectives::owned_ranges(buckets,
                                     plan.sharding.topology.part_of(communicator.rank()),
                                     plan.sharding.topology.ranks());
  }
  collectives::LaneShares lane_shares() const { return plan.sharding.shares(); }
  collectives::LocalLanes lanes() const { return lane_shares().of(communicator.rank()); }
  int local_lanes() const { return lanes().count; }
  data::BatchGeometry geometry() const {
    return {config.train.global_batch / plan.sharding.lanes,
            plan.sharding.lanes,
            lanes().first,
            lanes().count,
            lanes().stride};
  }
};

// The allocations of a run: one for each row of the plan's memory table, except that of the data
// sets.
struct RunMemory {
  // In the plan's compute type: flat or, if they are sharded, this rank's owned_parameters() one
  // after the other.
  std::byte* parameters = nullptr;
  std::byte* gathered = nullptr;  // the parameters that ops read: the same, or those of some blocks
  float* masters = nullptr;       // the ranges that this rank updates, one after the other; null if
                                  // compute is fp32
  float* gradients = nullptr;     // buffers of Plan::gradient_elements
  float* gradient_sums = nullptr;  // the owned ranges one after the other; null: in the gradients
  // Per moment, as it is stored, the ranges that this rank updates, one after the other; then those
  // of the average of the weights, fp32.
  std::byte* moments = nullptr;
  std::byte* arena = nullptr;
  std::byte* constants = nullptr;
  float* staging = nullptr;
  std::byte* gradient_rows = nullptr;  // null if there are none
  // For compressed gradients, else null: see ErrorFeedbackLayout or, if they are sent as factors,
  // PowerSgd.
  std::byte* residuals = nullptr;
  float* factors = nullptr;
  std::byte* muon = nullptr;               // for MuonDirections; null without
  std::byte* factored_sums = nullptr;      // for FactoredAverages; null without
  std::byte* factored_averages = nullptr;  // likewise, on the host
  // On the host: the copies from which a checkpoint is written while training continues, of the
  // weights on rank 0 alone; empty if training waits for checkpoints.
  std::span<float> weights_snapshot;
  std::span<std::byte> moments_snapshot;
  std::span<std::byte> train_batches, eval_batches;  // on the host
  std::span<std::byte> eval_scores;                  // on the host: see task_scores.h
  std::byte* device_batches = nullptr;               // null if the device reads host memory
  std::byte* sums = nullptr;                         // for DeviceSums; likewise
};

// Allocates the memory that the ranks of a node share, as planned. All ranks together; throws
// AgreedError.
void allocate_shared(collectives::NodeMemory& node, const plan::Plan& plan);

// Allocates exactly what the plan has for `rank`; memory that ranks share is part of `node`. Throws
// MemoryError.
RunMemory allocate_run(exec::Backend& backend,
                       const plan::Plan& plan,
                       const collectives::NodeMemory* node = nullptr,
                       int rank = 0);

}  // namespace lockstep::train
