#pragma once

#include <vector>

#include "runtime/exec/backend.h"

namespace lockstep {

// Floats of the backend as the host sees them: the same memory where it can, else a copy.
class HostCopy {
 public:
  // `device`: n floats of the backend's memory, borrowed.
  HostCopy(Backend& backend, float* device, int64_t n)
      : backend_(backend),
        device_(device),
        n_(n),
        copy_(backend.ops().separate_memory ? static_cast<size_t>(n) : 0) {}

  float* data() { return copy_.empty() ? device_ : copy_.data(); }
  // Brings what the device has, once everything queued is done.
  float* read() {
    if (!copy_.empty()) backend_.copy(bytes(device_), bytes(copy_.data()), size());
    backend_.synchronize();
    return data();
  }
  // Gives the device what the host has written.
  void write() {
    if (copy_.empty()) return;
    backend_.copy(bytes(copy_.data()), bytes(device_), size());
    backend_.synchronize();
  }

 private:
  static std::byte* bytes(float* x) { return reinterpret_cast<std::byte*>(x); }
  size_t size() const { return static_cast<size_t>(n_) * sizeof(float); }

  Backend& backend_;
  float* device_;
  int64_t n_;
  std::vector<float> copy_;
};

}  // namespace lockstep
