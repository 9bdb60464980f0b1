#pragma once
// leading_columns: the first columns of every row. With length buckets, the loader fills samples of
// the whole context, and the graph of a shorter length takes only as many tokens of each row as it
// computes.
//   inputs x (..., T) i32; outputs y (..., T') i32, T' <= T
// It has no gradient.

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

namespace ops {

// x (..., T) i32 -> (..., columns) i32. columns in [1, T].
TensorId leading_columns(GraphBuilder& builder,
                         const std::string& name,
                         TensorId x,
                         int64_t columns);

}  // namespace ops

struct LeadingColumns {
  int64_t rows, columns, kept;  // T, T'
  const int32_t* x;             // (rows, T)
  int32_t* y;                   // (rows, T')

  static LeadingColumns of(const OpCall& op) {
    const Shape& shape = op.input_shape(0);
    return {.rows = shape.rows(),
            .columns = shape.columns(),
            .kept = op.output_shape(0).columns(),
            .x = op.input<int32_t>(0),
            .y = op.output<int32_t>(0)};
  }
};

}  // namespace lockstep
