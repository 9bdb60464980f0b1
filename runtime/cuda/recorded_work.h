#pragma once
// CUDA graphs: work that every step repeats, queued with one call.

#include <functional>
#include <memory>
#include <vector>

#include "runtime/cuda/stream.h"
#include "runtime/exec/backend.h"

namespace lockstep::cuda {

// Records the work of one stream as CUDA graphs. Must outlive the work that it records.
class Recorder {
 public:
  explicit Recorder(Stream stream) : stream_(stream) {}
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // The returned work runs directly the first time, when libraries initialise themselves; the
  // second time it is recorded, and from then on replayed.
  std::unique_ptr<RepeatedWork> repeated_work();
  // Runs `work` at once. While repeated work is being recorded, `work` runs again at every replay,
  // between two graphs: one with the work queued before it, one with the work queued after it.
  void outside(std::function<void()> work);

 private:
  class Work;
  using Parts = std::vector<std::function<void()>>;

  void record(const std::function<void()>& work, Parts& parts);
  void begin();
  void end();

  Stream stream_;
  Parts* parts_ = nullptr;  // of the work being recorded
};

}  // namespace lockstep::cuda
