#pragma once
// CUDA graphs: work that every step repeats, queued with one call.

#include <functional>
#include <memory>
#include <vector>

#include "runtime/cuda/stream.h"
#include "runtime/exec/backend.h"

struct CUgraph_st;
struct CUgraphExec_st;

namespace lockstep::cuda {

// Records the work of one stream as CUDA graphs. Must outlive the work that it records.
class Recorder {
 public:
  explicit Recorder(Stream stream) : stream_(stream) {}
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // The returned work runs directly the first time, when libraries initialise themselves; the
  // second time it is recorded, and from then on replayed.
  std::unique_ptr<exec::RepeatedWork> repeated_work();
  // Runs `work` at once. While repeated work is being recorded, `work` runs again at every replay,
  // between two graphs: one with the work queued before it, one with the work queued after it.
  void outside(std::function<void()> work);

  // From here on the graphs should take at most `bytes` of the GPU's memory: if they take more, a
  // warning is logged, once.
  void plan(size_t bytes);
  // Graphs that exist.
  size_t graphs() const { return *graphs_; }

 private:
  class Work;
  using Parts = std::vector<std::function<void()>>;

  void record(const std::function<void()>& work, Parts& parts);
  void begin();
  void end();
  void count(size_t nodes, size_t bytes);
  std::shared_ptr<CUgraphExec_st> instantiate(CUgraph_st* graph, size_t nodes);

  Stream stream_;
  Parts* parts_ = nullptr;  // of the work being recorded
  std::shared_ptr<size_t> graphs_ = std::make_shared<size_t>(0);
  size_t planned_bytes_ = 0, taken_bytes_ = 0, nodes_ = 0;  // of the graphs since plan()
};

}  // namespace lockstep::cuda
