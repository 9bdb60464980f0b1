#pragma once
// The metrics of one training step. The names are those of metrics.jsonl, which is an interface.

#include <cstdint>
#include <optional>

#include "runtime/metrics/device_record.h"
#include "runtime/metrics/task_metrics.h"

namespace lockstep::metrics {

// The rank that worked longest, if it makes the other ranks wait noticeably.
struct SlowestRank {
  int rank = 0;
  const char* host = "";  // outlives the record
  double longer_ms = 0;   // more than the rank that worked least
};

struct StepRecord {
  int64_t step = 0;     // completed steps, from 1
  double epoch = 0;     // epochs consumed, with fraction
  int64_t samples = 0;  // consumed since the beginning of the run
  double loss = 0;      // mean over the global batch
  double lr = 0;
  double grad_norm = 0;        // global L2 norm before clipping
  double step_ms = 0;          // wall time of the step
  double compute_ms = 0;       // forward and backward
  double comm_exposed_ms = 0;  // communication that does not overlap with computation
  double straggler_ms = 0;     // the part of it that waits for slower ranks
  double data_wait_ms = 0;
  double optimizer_ms = 0;
  double samples_per_s = 0;             // over all ranks
  double tokens_per_s = -1;             // tokens read, without padding; negative: no text, left out
  double mfu = -1;                      // model FLOPs utilisation; negative: peak unknown, left out
  double loss_scale = 0;                // of FP16; 0: no loss scaling, left out
  int64_t skipped_steps = 0;            // steps so far whose gradient was not finite
  int64_t failed_checkpoints = 0;       // of this process, so far; 0: left out
  std::optional<SlowestRank> slowest;   // left out if ranks hardly differ
  std::optional<DeviceRecord> devices;  // of ranks on GPUs, about once a second
  std::optional<uint64_t> state_digest;  // of weights and moments before the step
  std::optional<uint64_t> weights_hash;  // after the step
  std::optional<double> eval_loss;
  std::optional<double> eval_accuracy;       // 0..1
  std::optional<double> eval_top5_accuracy;  // 0..1
  std::optional<double> eval_perplexity;
  TaskMetrics eval_task = {};  // eval_f1 and so on; task_metrics.h has the names
};

}  // namespace lockstep::metrics
