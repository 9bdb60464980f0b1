#pragma once
// max_pool: y = the largest pixel of each window, by channel; the first one among equals, NaN above
// all.
//   inputs x (N, H, W, C); outputs y (N, OH, OW, C); in training also place (N, OH, OW, C) u8:
//   which tap of the window it was, row by row
// max_pool_backward: d_x = sum of d_y over the windows whose largest pixel this is.
//   inputs d_y, place; outputs d_x
// avg_pool: y = the mean of each window, by channel; at the border over the kernel's area
// (count_include_pad) or over the pixels that there are.
//   inputs x (N, H, W, C); outputs y (N, OH, OW, C)
// avg_pool_backward: inputs d_y; outputs d_x
// global_avg_pool: y = the mean over all pixels, by image and channel.
//   inputs x (N, H, W, C); outputs y (N, C)
// global_avg_pool_backward: d_x = d_y / (H W). inputs d_y (N, C); outputs d_x (N, H, W, C)

#include <cstdint>
#include <string>

#include "runtime/graph/extent2d.h"
#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct PoolAttributes {
  Extent2d kernel, stride;
  Extent2d padding{0, 0};         // on each side; less than the kernel
  bool count_include_pad = true;  // avg_pool: divide by the kernel's area at the border too
};

namespace ops {

// (N, H, W, C) -> (N, OH, OW, C).
TensorId max_pool(GraphBuilder& builder,
                  const std::string& name,
                  TensorId x,
                  const PoolAttributes& attributes);
TensorId avg_pool(GraphBuilder& builder,
                  const std::string& name,
                  TensorId x,
                  const PoolAttributes& attributes);
// (N, H, W, C) -> (N, C).
TensorId global_avg_pool(GraphBuilder& builder, const std::string& name, TensorId x);

}  // namespace ops
}  // namespace lockstep
