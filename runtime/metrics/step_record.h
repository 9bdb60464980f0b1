#pragma once
// The metrics of one training step. The names are those of metrics.jsonl, which is an interface.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/metrics/task_metrics.h"

namespace lockstep::metrics {

// The rank that worked longest, if it makes the other ranks wait noticeably.
struct SlowestRank {
  int rank = 0;
  const char* host = "";  // outlives the record
  double longer_ms = 0;   // more than the rank that worked least
};

// The GPUs of all ranks at one step, for metrics.jsonl and TensorBoard. A value that no rank knows
// is negative, and left out.
struct DeviceRecord {
  double clock_mhz_min = -1, clock_mhz_max = -1;  // over the ranks under load
  int64_t clock_mhz_min_rank = -1;
  double max_clock_mhz = -1;  // that the model reaches
  double memory_clock_mhz_min = -1;
  double power_w = -1;  // of all ranks
  double temperature_c_max = -1;
  int64_t temperature_c_max_rank = -1;
  int64_t memory_used_bytes = -1;                    // of the rank that uses most
  int64_t memory_beside_plan_bytes = -1;             // the same, without what the plan has
  int64_t ecc_corrected = -1, ecc_uncorrected = -1;  // errors since the start, of all ranks
  int64_t limited_ranks = -1;                        // ranks whose clock something keeps low
  std::string limits;                                // what, over all ranks; empty: left out
  int64_t xid = -1, xid_rank = -1;                   // the latest fault that a driver has reported
};

struct DeviceNumber {
  const char* name;
  double DeviceRecord::*value;
};
inline constexpr DeviceNumber kDeviceNumbers[] = {
    {"gpu_clock_mhz_min", &DeviceRecord::clock_mhz_min},
    {"gpu_clock_mhz_max", &DeviceRecord::clock_mhz_max},
    {"gpu_max_clock_mhz", &DeviceRecord::max_clock_mhz},
    {"gpu_memory_clock_mhz_min", &DeviceRecord::memory_clock_mhz_min},
    {"gpu_power_w", &DeviceRecord::power_w},
    {"gpu_temperature_c_max", &DeviceRecord::temperature_c_max}};

struct DeviceCount {
  const char* name;
  int64_t DeviceRecord::*value;
};
inline constexpr DeviceCount kDeviceCounts[] = {
    {"gpu_clock_mhz_min_rank", &DeviceRecord::clock_mhz_min_rank},
    {"gpu_temperature_c_max_rank", &DeviceRecord::temperature_c_max_rank},
    {"gpu_memory_used_bytes", &DeviceRecord::memory_used_bytes},
    {"gpu_memory_beside_plan_bytes", &DeviceRecord::memory_beside_plan_bytes},
    {"gpu_ecc_corrected", &DeviceRecord::ecc_corrected},
    {"gpu_ecc_uncorrected", &DeviceRecord::ecc_uncorrected},
    {"gpu_limited_ranks", &DeviceRecord::limited_ranks},
    {"gpu_xid", &DeviceRecord::xid},
    {"gpu_xid_rank", &DeviceRecord::xid_rank}};

// The energy of the hosts' CPUs and the ranks' GPUs, as far as it can be read. `joules` and
// `joules_per_step` are of the steps since the last record of energy, with what came between them.
struct EnergyRecord {
  double joules = 0, joules_per_step = 0;
  double total_joules = 0;  // since the beginning of the run
};

struct StepRecord {
  int64_t step = 0;     // completed steps, from 1
  double time = 0;      // when the step ended, in seconds since 1970
  double epoch = 0;     // epochs consumed, with fraction
  int64_t samples = 0;  // consumed since the beginning of the run
  double loss = 0;      // mean over the global batch
  double lr = 0;
  double grad_norm = 0;          // global L2 norm before clipping
  double step_ms = 0;            // wall time of the step
  double predicted_step_ms = 0;  // by the forecast made before the start; 0: none, left out
  double compute_ms = 0;         // forward and backward
  double comm_exposed_ms = 0;    // communication that does not overlap with computation
  double straggler_ms = 0;       // the part of it that waits for slower ranks
  double data_wait_ms = 0;
  double optimizer_ms = 0;
  double samples_per_s = 0;        // over all ranks
  double tokens_per_s = -1;        // tokens read, without padding; negative: no text, left out
  double mfu = -1;                 // model FLOPs utilisation; negative: peak unknown, left out
  double loss_scale = 0;           // of FP16; 0: no loss scaling, left out
  int64_t skipped_steps = 0;       // steps so far whose gradient was not finite
  int64_t failed_checkpoints = 0;  // of this process, so far; 0: left out
  // At the last step: how much longer than measured the forecast is; -0.1: a tenth shorter.
  std::optional<double> forecast_error;
  std::optional<SlowestRank> slowest;    // left out if ranks hardly differ
  std::optional<DeviceRecord> devices;   // of ranks on GPUs, about once a second
  std::optional<EnergyRecord> energy;    // about once a second, if it can be read
  std::optional<uint64_t> state_digest;  // of weights and moments before the step
  std::optional<uint64_t> weights_hash;  // after the step
  std::optional<double> eval_loss;
  std::optional<double> eval_accuracy;       // 0..1
  std::optional<double> eval_top5_accuracy;  // 0..1
  std::optional<double> eval_perplexity;
  TaskMetrics eval_task = {};  // eval_f1 and so on; task_metrics.h has the names
};

}  // namespace lockstep::metrics
