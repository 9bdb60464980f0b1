#pragma once
// Compares a device with the CPU, op by op: every op of a graph runs on both with the same inputs.

#include <functional>
#include <string>
#include <vector>

#include "runtime/exec/device.h"
#include "runtime/graph/builder.h"

namespace lockstep::launcher {

// The deviation of one output of one op from the CPU's.
struct OpDeviation {
  std::string op;       // "linear transformer.h.0.mlp.c_fc"
  std::string tensor;   // the output
  double relative = 0;  // L2 norm of the difference, relative to the CPU's norm
  double limit = 0;     // the largest deviation that rounding to the type explains
  bool passed() const { return relative <= limit; }  // false for NaN
};

struct ParityCase {
  std::string name;
  std::function<graph::Graph(const graph::GraphOptions&)> build;  // of one lane
  int64_t lane_batch;
  int64_t classes;  // limit of token ids and labels; 0 if there are none
  graph::Purpose purpose = graph::Purpose::kTraining;
  float mix = 1;        // LaneContext::mix
  int lanes = 1;        // over which synchronised norms compute their statistics
  bool padded = false;  // samples of texts have one document each, and padding behind it
};

// The graphs of the self-test: every op, activation and loss, odd sizes and sizes that fill
// vectors, a large vocabulary.
std::vector<ParityCase> parity_cases();

// A precision of the device.
struct ParityMode {
  std::string name;  // "BF16"
  DType compute;
  bool tf32 = false;
};

// FP32, BF16, FP16 and TF32.
std::vector<ParityMode> parity_modes();

// Compares every output of every op of the case's graph. An error of the device names the op, such
// as "attention transformer.h.0.attn". Ops in `skipped`, by name or kind, do not run on the device;
// the ops after them get the CPU's outputs instead, and are skipped too if that is impossible.
std::vector<OpDeviation> compare_ops(const ParityCase& test,
                                     exec::Device& device,
                                     const ParityMode& mode,
                                     const std::vector<std::string>& skipped = {});

}  // namespace lockstep::launcher
