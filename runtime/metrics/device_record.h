#pragma once
// The GPUs of all ranks at one step, for metrics.jsonl and TensorBoard.

#include <cstdint>
#include <string>

namespace lockstep::metrics {

// A value that no rank knows is negative, and left out.
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

}  // namespace lockstep::metrics
