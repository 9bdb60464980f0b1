#pragma once
// Times the ops of a graph one by one, and compares them with two ceilings: the rate of a large
// copy, and the peak of the arithmetic. On a GPU the peak is the rate of a large product. On a CPU
// it is that of the units that the op uses (multiply-adds or AMX tiles), measured beside the op,
// because clocks change.

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
  double peak_tflops = 0;  // of the units that do the arithmetic
  std::string units = {};  // "AMX tiles"; on a GPU "a large product"
};

struct Ceilings {
  double copy_gbytes_per_s = 0;  // bytes read and written, for a large copy
  double matmul_tflops = 0;      // for a large square product; 0 on a CPU
};

// The ceiling that an op comes closest to.
struct Reached {
  double share;         // of the ceiling
  std::string ceiling;  // OpTiming::units, or "a large copy"
};
Reached reached(const OpTiming& timing, const Ceilings& ceilings);

// `graph` is in the type `compute`. Needs the device for itself while it runs.
std::vector<OpTiming> time_ops(const graph::Graph& graph,
                               exec::Device& device,
                               const exec::BackendRequest& request,
                               const Ceilings& ceilings,
                               int repeats);
Ceilings measure_ceilings(exec::Device& device, const exec::BackendRequest& request, int repeats);

}  // namespace lockstep::launcher
