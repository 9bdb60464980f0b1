#pragma once
// CUDA graphs: work that every step repeats, queued with one call.

#include <functional>
#include <memory>
#include <vector>

#include "runtime/cuda/stream.h"
#include "runtime/exec/backend.h"

namespace lockstep::cuda {

// Records work of one stream as CUDA graphs. It outlives the work that it records.
class Recorder {
 public:
  explicit Recorder(Stream stream) : stream_(stream) {}
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Run as it is the first time, when libraries set themselves up; recorded the second time;
  // replayed from then on.
  std::unique_ptr<RepeatedWork> repeated_work();
  // Runs `work` at once or, while repeated work is being recorded, each time that this is replayed,
  // between two graphs: what was queued before it is in the first, what follows is in the second.
  void outside(std::function<void()> work);

 private:
  class Work;
  using Parts = std::vector<std::function<void()>>;

  void record(const std::function<void()>& work, Parts& parts);
  void begin();
  void end();

  Stream stream_;
  Parts* parts_ = nullptr;  // of what is being recorded
};

}  // namespace lockstep::cuda
