#pragma once
// padded_identity: every stride-th pixel of x in both directions, with channels of zeros before and
// after its own: the shortcut without parameters of He et al. 2015 (option A).
//   inputs x (N, H, W, C); outputs y (N, ceil(H / stride), ceil(W / stride), before + C + after)
// padded_identity_backward: d_x = d_y at those pixels, zero at the others. inputs d_y; outputs d_x

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct PaddedIdentityAttributes {
  int64_t stride = 1;
  int64_t before = 0, after = 0;  // channels of zeros
};

namespace ops {

// Every stride-th pixel of x, channels of zeros around its own.
TensorId padded_identity(GraphBuilder& builder,
                         const std::string& name,
                         TensorId x,
                         const PaddedIdentityAttributes& attributes);

}  // namespace ops
}  // namespace lockstep
