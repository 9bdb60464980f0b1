#pragma once
// Times the ops of a graph one by one, against the device's peak rates of copying and multiplying.

#include <string>
#include <vector>

#include "runtime/exec/device.h"

namespace lockstep::launcher {

// All ops of one kind and shape.
struct OpTiming {
  std::string op;           // "layer_norm_backward"
  std::string shapes;       // of the inputs
  int count = 0;            // in one lane of a step
  double us = 0;            // of one op: the median of the repeats
  double gbytes_per_s = 0;  // if every input and output is moved once
  double tflops = 0;
};

struct Ceilings {
  double copy_gbytes_per_s = 0;  // bytes read and written, for a large copy
  double matmul_tflops = 0;      // for a large square product
};

// `graph` is in the type `compute`. Needs the device for itself while it runs.
std::vector<OpTiming> time_ops(const graph::Graph& graph,
                               exec::Device& device,
                               const exec::BackendRequest& request,
                               int repeats);
Ceilings measure_ceilings(exec::Device& device,
                          const exec::BackendRequest& request,
                          bool bf16x3,
                          int repeats);

}  // namespace lockstep::launcher
