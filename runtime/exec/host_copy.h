#pragma once
// Arrays that the device writes and the host reads, or the other way round.

#include <vector>

#include "runtime/exec/backend.h"

namespace lockstep::exec {

// Host access to numbers in the backend's memory: the memory itself if the host can reach it,
// otherwise a copy.
template <typename T>
class HostCopyOf {
 public:
  // `device`: n numbers in the backend's memory, borrowed.
  HostCopyOf(Backend& backend, T* device, int64_t n)
      : backend_(backend),
        device_(device),
        n_(n),
        copy_(backend.ops().separate_memory ? static_cast<size_t>(n) : 0) {}

  T* data() { return copy_.empty() ? device_ : copy_.data(); }
  // Waits for everything queued and copies the numbers from the device.
  T* read() {
    if (!copy_.empty()) backend_.copy(bytes(device_), bytes(copy_.data()), size());
    backend_.synchronize();
    return data();
  }
  // Copies what the host has written to the device.
  void write() {
    if (copy_.empty()) return;
    backend_.copy(bytes(copy_.data()), bytes(device_), size());
    backend_.synchronize();
  }

 private:
  static std::byte* bytes(T* x) { return reinterpret_cast<std::byte*>(x); }
  size_t size() const { return static_cast<size_t>(n_) * sizeof(T); }

  Backend& backend_;
  T* device_;
  int64_t n_;
  std::vector<T> copy_;
};
using HostCopy = HostCopyOf<float>;

}  // namespace lockstep::exec
