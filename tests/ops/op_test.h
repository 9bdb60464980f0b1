#pragma once
// One test of an op for all devices. A test gives a graph of the op, its reference in double
// precision (a table of implementations that store doubles) and what a float may be off by; each
// implementation of each device is then run on the same inputs, in every type that it stores,
// between guard zones, at addresses that vectors may and may not use, over its inputs where the
// schema lets it, and in all ways that must give the same bits: vector widths, numbers of threads,
// orders of a block's threads. Implementations that call a library of CUDA's run on its stand-in
// (tests/fibers), where arrays begin as the memory plan lets them.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/exec/op_set.h"
#include "runtime/graph/builder.h"

namespace lockstep::test {

// What an output may be off by.
struct Tolerance {
  double floats;  // in units of kEps: of arithmetic in float
  double stored;  // in units of half the spacing of what tensors store, at 1: of rounding to it
};

struct OpTest {
  std::string name;
  // Appends the op, last, with what it needs. Ops that `reference` does not have, such as those
  // that the executor does itself, are not run: what they would write is an input.
  std::function<void(graph::GraphBuilder& builder)> build;
  exec::Implementations reference, cpu, cuda;
  exec::Implementations cuda_tf32 = {};  // if products of floats may be rounded to TF32
  // Of element i of an output; `expected` is the reference's call, after it has run.
  std::function<Tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i)>
      tolerance;
  // Outputs, from the first on, whose gradients the backward pass is given; 0: no backward pass.
  // A loss has its gradient among its outputs, which lies over its first input, where this is 1.
  size_t gradients = 1;
  int lanes = 1;          // of GraphOptions
  int head_multiple = 1;  // of GraphOptions; elements of tensors are counted with padding
  bool bf16x3 = false;    // of GraphOptions
  std::vector<float> class_weights = {};  // of GraphOptions
  std::vector<float> pos_weight = {};     // of GraphOptions
  bool any_address = true;                // also where no array begins on a boundary of vectors
  bool needs_fma = false;                 // not on CPUs that round a product before they add it
  // Inputs are uniform in [low, high), or what `value` says of element i of the tensor of a name.
  double low = -1, high = 1;
  std::function<double(const std::string& tensor, int64_t i)> value = nullptr;
  graph::LaneContext lane = {.seed = 3, .step = 5, .lane = 1, .valid_rows = 1 << 30};
};

// Runs the graph's ops and those of the last one's backward rule on every device, and compares what
// they write with the reference.
void check_on_all_devices(const OpTest& test);

// What the reference makes of the op's first output.
std::vector<double> first_output_of_reference(const OpTest& test);

// Checks the reference's backward pass against finite differences of its forward pass.
void check_gradient_of_reference(const OpTest& test);

}  // namespace lockstep::test
