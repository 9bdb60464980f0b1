#pragma once
// The least time of a graph on a GPU model: for every op the time of its operations at the peak
// rate, or of its bytes at the memory's bandwidth, whichever is more. A prediction and a bound: no
// kernel reaches either rate in full.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/cuda/plan/gpu_models.h"
#include "runtime/graph/graph.h"

namespace lockstep::cuda {

// Products (m, k) x (k, n), or convolutions that are computed as such, with equal extents.
struct PredictedProduct {
  std::string name;  // of the first op that has it
  int64_t m = 0, n = 0, k = 0;
  int64_t groups = 1;        // products of this size that are computed at once
  bool convolution = false;  // whose (m, k) is not in memory: each pixel is read once
  int64_t count = 0;
  double seconds = 0;  // of one

  double total_seconds() const { return static_cast<double>(count) * seconds; }
};

struct Roofline {
  double seconds = 0;                      // of the whole graph
  std::vector<PredictedProduct> products;  // those that take longest first
};

// `tf32`: products of floats run in TF32.
Roofline predict_graph(const graph::Graph& graph, const GpuModel& model, bool tf32);

}  // namespace lockstep::cuda
