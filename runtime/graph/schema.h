#pragma once
// What the graph knows about each kind of op: its backward rule, its cost, and where it may work in
// place.

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/graph/graph.h"

namespace lockstep::graph {

class GradientBuilder;

struct OpSchema {
  // Appends the ops that compute the gradients of op's inputs from those of its outputs (kNoTensor:
  // the gradient is zero). Returns one per input (kNoTensor: no gradient). Parameter gradients are
  // written through GradientBuilder. Null for backward ops; losses are roots, which autodiff
  // handles itself.
  OpInputs (*backward)(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs);
  // Floating-point operations; a multiply-add counts as two.
  int64_t (*flops)(const Graph& graph, const Op& op);
  // The output may overwrite the input if nothing else needs the input and both have the same type
  // and size. An op may have fewer inputs.
  std::vector<std::pair<OutputName, InputName>> in_place;
  // A sample's outputs depend on this sample's inputs, and not on the lane, so that one call may
  // compute several lanes. Gradients of parameters are then those of each lane (CallLanes).
  bool joins_lanes = false;
  // A loss whose operands are LossIn and LossOut, and whose gradient overwrites the prediction.
  bool is_loss = false;
};

// The schema of a loss whose operands are LossIn and LossOut.
OpSchema loss_schema(int64_t (*flops)(const Graph& graph, const Op& op));

const OpSchema& schema_of(OpKind kind);

// Bytes that an op reads and writes if every tensor goes through memory once.
int64_t bytes_moved(const Graph& graph, const Op& op);

// Defined by each op in graph/ops/.
#define KIND(Kind, name) extern const graph::OpSchema k##Kind##Schema;
#include "runtime/graph/ops.def"

}  // namespace lockstep::graph
