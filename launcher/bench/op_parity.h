#pragma once
// Compares a device with the CPU, op by op: every op of a graph runs on both from the same inputs.

#include <functional>
#include <string>
#include <vector>

#include "runtime/exec/device.h"
#include "runtime/graph/builder.h"

namespace lockstep {

// How far one output of one op is from the CPU's.
struct OpDeviation {
  std::string op;                                    // "linear transformer.h.0.mlp.c_fc"
  std::string tensor;                                // the output
  double relative = 0;                               // L2 norm of the difference, of the CPU's norm
  double limit = 0;                                  // largest that rounding to the type explains
  bool passed() const { return relative <= limit; }  // NaN does not
};

struct ParityCase {
  std::string name;
  std::function<Graph(const GraphOptions&)> build;  // one lane's
  int64_t lane_batch;
  int64_t classes;  // bound of token ids and labels, 0 where there are none
  Purpose purpose = Purpose::kTraining;
  float mix = 1;  // of LaneContext
  int lanes = 1;  // that synchronised norms take their statistics from
};

// The graphs of the self-test: every op, activation and loss, odd and whole sizes, a large
// vocabulary.
std::vector<ParityCase> parity_cases();

// What the device computes in.
struct ParityMode {
  std::string name;  // "BF16"
  DType compute;
  bool tf32 = false;
};

// FP32, BF16, FP16 and TF32, in the order of what they find.
std::vector<ParityMode> parity_modes();

// Every output of every op of the case's graph, computed on the device. An error of the device
// names the op, such as "attention transformer.h.0.attn". Ops of these names or kinds are not run
// there, nor is what needs more of one than the CPU can give in its place.
std::vector<OpDeviation> compare_ops(const ParityCase& test,
                                     Device& device,
                                     const ParityMode& mode,
                                     const std::vector<std::string>& skipped = {});

}  // namespace lockstep
