#pragma once
// What the tests of convolutions on CPUs share: inputs, calls.

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/cpu/conv2d/conv2d.h"
#include "tests/reference/conv2d_shapes.h"
#include "tests/reference/kernel_test.h"

namespace lockstep::cpu {

using test::conv2d_shapes;
using test::describe;
using test::Guarded;
using test::square;

struct ConvInputs {
  explicit ConvInputs(const graph::Conv2dShape& s)
      : x(s.batch * s.height * s.width * s.channels, 1),
        w(s.outputs * s.kernel_h * s.kernel_w * s.group_channels(), 2),
        bias(s.outputs, 3),
        d_y(s.out_pixels() * s.outputs, 1) {
    test::fill_uniform(x, -1, 1, 11);
    test::fill_uniform(w, -1, 1, 12);
    test::fill_uniform(bias, -1, 1, 13);
    test::fill_uniform(d_y, -1, 1, 14);
  }
  Guarded<float> x, w, bias, d_y;
};

inline std::vector<float> forward(const graph::Conv2dShape& s,
                                  ConvInputs& in,
                                  const Epilogue<float>& epilogue) {
  Guarded<float> y(in.d_y.size(), 3);
  std::fill(y.begin(), y.end(), NAN);
  Guarded<unsigned char> workspace(conv2d_forward_workspace_bytes(s, compute_threads()));
  conv2d_forward<float>(
      {.shape = s, .x = in.x.data(), .w = in.w.data(), .epilogue = epilogue, .y = y.data()},
      workspace.data());
  return y.copy();
}

}  // namespace lockstep::cpu
