#pragma once
// How long the host waits for its GPU, and when that is too long. Needs no NCCL: a run on one GPU
// waits too.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "runtime/base/time.h"

namespace lockstep::collectives {

// Time is measured from a mark (an event) in a stream. As long as marks are reached, work is being
// done, whether it was queued call by call or as a graph.
class DeviceWait {
 public:
  // Timeouts for the first and for all later work, which may also take three times as long as the
  // longest so far. `waited`: as NcclOptions has it; may be empty.
  DeviceWait(CUstream_st* stream,
             double first_timeout_s,
             double timeout_s,
             std::function<void(double, bool)> waited)
      : stream_(stream),
        first_timeout_s_(first_timeout_s),
        timeout_s_(timeout_s),
        waited_(std::move(waited)) {}
  DeviceWait(const DeviceWait&) = delete;
  DeviceWait& operator=(const DeviceWait&) = delete;
  ~DeviceWait() {
    if (mark_ != nullptr) cudaEventDestroy(mark_);
  }

  struct State {
    cudaError_t error = cudaSuccess;  // of the work
    double exceeded_s = 0;            // the limit that the work has exceeded; 0: none
  };
  // To be called every few milliseconds while the host waits.
  State check() {
    const double now = now_ms();
    if (!marked_) return {begin(now)};
    // The host was busy elsewhere, or stopped.
    waited_ms_ += std::min(now - checked_at_ms_, kLongestPauseMs);
    checked_at_ms_ = now;
    const cudaError_t reached = cudaEventQuery(mark_);
    if (reached == cudaErrorNotReady) return {cudaSuccess, exceeded()};
    marked_ = false;
    if (waited_) waited_(0, false);
    longest_ms_ = std::max(longest_ms_, waited_ms_);
    return {reached};
  }

 private:
  static constexpr double kLongestPauseMs = 1000;
  static constexpr double kWatchdogSeconds = 5;  // that the watchdogs have to name a late rank

  cudaError_t begin(double now) {
    cudaError_t error = cudaSuccess;
    if (mark_ == nullptr) error = cudaEventCreateWithFlags(&mark_, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaEventRecord(mark_, stream_);
    marked_ = error == cudaSuccess;
    checked_at_ms_ = now;
    waited_ms_ = 0;
    return error;
  }

  double exceeded() const {
    const double limit_s =
        longest_ms_ == 0 ? first_timeout_s_ : std::max(timeout_s_, 3 * longest_ms_ / 1000);
    const double waited_s = waited_ms_ / 1000;
    const bool late = waited_s >= limit_s;
    if (waited_) waited_(waited_s, late);
    return !late || (waited_ && waited_s < limit_s + kWatchdogSeconds) ? 0 : limit_s;
  }

  CUstream_st* stream_;
  double first_timeout_s_, timeout_s_;
  std::function<void(double, bool)> waited_;
  cudaEvent_t mark_ = nullptr;
  bool marked_ = false;
  double checked_at_ms_ = 0, waited_ms_ = 0, longest_ms_ = 0;
};

}  // namespace lockstep::collectives
