#pragma once
// resize: y[i, j] = sum of down(i, h) across(j, w) x[h, w] over the one or two rows h and columns w
// that i and j read, by image and channel. Their indices and weights are in tables, one for each
// axis, made when the graph is built. So every mode uses the same two kernels.
// resize_backward: d_x[h, w] = sum of down(i, h) across(j, w) d_y[i, j] over the outputs that read
// the pixel, row by row.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/base/host_device.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

// Of both kinds; the tables are i32, of ResizeAxis.
enum class ResizeIn : InputIndex {
  kX,            // (N, H, W, C)
  kDY = kX,      // (N, OH, OW, C)
  kReadsDown,    // (OH, 3)
  kReadsAcross,  // (OW, 3)
  kReadersDown,  // (H, 2)
  kReadersAcross
};
enum class ResizeOut : OutputIndex { kY, kDX = kY };

// What the outputs along an axis read. The indices read never decrease from one output to the next,
// so that the outputs that read an index are adjacent.
struct ResizeAxis {
  struct Read {
    int64_t first = 0, second = 0;  // indices in x; second >= first
    float weight = 0;               // of the second; the first has 1 - weight
  };
  std::vector<Read> reads;  // by output
};

namespace ops {

// Returns y, with as many rows and columns as the axes have outputs.
TensorId resize(GraphBuilder& builder,
                const std::string& name,
                TensorId x,
                const ResizeAxis& down,
                const ResizeAxis& across);

}  // namespace ops

// A row of reads_down and reads_across.
struct ResizeRead {
  int32_t first, second;
  float weight;  // stored as its bits in the table
};
static_assert(sizeof(ResizeRead) == 3 * sizeof(int32_t));

// A row of readers_down and readers_across: outputs [begin, end) read the index.
struct ResizeReaders {
  int32_t begin, end;
};

// The weight that an output gives to an index.
LOCKSTEP_HD float resize_weight(const ResizeRead& read, int32_t index) {
  return (read.first == index ? 1 - read.weight : 0) + (read.second == index ? read.weight : 0);
}

template <typename T>
struct ResizeCall {
  const OpCall& call = OpCall::none();
  int64_t images = x_shape(call)[0];
  int64_t height = x_shape(call)[1];
  int64_t width = x_shape(call)[2];
  int64_t channels = x_shape(call)[3];
  int64_t out_height = y_shape(call)[1];
  int64_t out_width = y_shape(call)[2];
  const T* from = call.input<T>(ResizeIn::kX);  // x; in the backward pass d_y
  const ResizeRead* reads_down = call.input<ResizeRead>(ResizeIn::kReadsDown);            // (OH)
  const ResizeRead* reads_across = call.input<ResizeRead>(ResizeIn::kReadsAcross);        // (OW)
  const ResizeReaders* readers_down = call.input<ResizeReaders>(ResizeIn::kReadersDown);  // (H)
  const ResizeReaders* readers_across = call.input<ResizeReaders>(ResizeIn::kReadersAcross);  // (W)
  T* to = call.output<T>(ResizeOut::kY);  // y; in the backward pass d_x

 private:
  static const Shape& x_shape(const OpCall& call) {
    return call.kind() == OpKind::kResize ? call.input_shape(ResizeIn::kX)
                                          : call.output_shape(ResizeOut::kDX);
  }
  static const Shape& y_shape(const OpCall& call) {
    return call.kind() == OpKind::kResize ? call.output_shape(ResizeOut::kY)
                                          : call.input_shape(ResizeIn::kDY);
  }
};

}  // namespace lockstep::graph
