#pragma once
// target_part: columns [first, first + columns) of the record of a sample's targets (N, W) i32, as
// i32 or as f32. Elements are copied bit by bit: a record holds class numbers and, as their bits,
// floats. The op has no gradient.

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class TargetPartIn : InputIndex { kRecord };
enum class TargetPartOut : OutputIndex { kPart };

struct TargetPartAttributes {
  int64_t first = 0;  // column of the record
};

namespace ops {

// `shape`: (N, ...), the extents of the part; `type`: kI32 or kF32.
TensorId target_part(GraphBuilder& builder,
                     const std::string& name,
                     TensorId record,
                     int64_t first,
                     const Shape& shape,
                     DType type);

}  // namespace ops

// The CPU and the GPU copy the bits of f32 parts as integers.
struct TargetPart {
  const OpCall& call = OpCall::none();
  int64_t first = call.attributes<TargetPartAttributes>().first;
  int64_t rows = call.input_shape(TargetPartIn::kRecord)[0];
  int64_t width = call.input_shape(TargetPartIn::kRecord)[1];
  int64_t columns = call.output_shape(TargetPartOut::kPart).elements() / rows;
  const int32_t* record = call.input<int32_t>(TargetPartIn::kRecord);  // (rows, width)
  int32_t* part = call.output<int32_t>(TargetPartOut::kPart);          // (rows, columns)
};

}  // namespace lockstep::graph
