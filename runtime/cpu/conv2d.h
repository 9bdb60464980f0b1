#pragma once
// Two-dimensional convolutions of NHWC images and their gradients, in float32.
//
// Every output is a chain of fused multiply-adds in a fixed order: over the kernel's rows, its
// columns and the channels (forward and gradient of the input), over the images, their rows and
// their columns (gradient of the weights). 3x3 kernels with stride 1 and enough channels are
// computed by Winograd's transforms (conv2d_winograd.h): again sums in a fixed order, of about the
// same accuracy. Hence the bits depend on nothing but the shape and the operands: not on threads,
// blocking or the instruction set (see gemm.h); nor on the other images of the batch. Padding
// counts as zeros.

#include <cstdint>

#include "runtime/graph/activation.h"

namespace lockstep::cpu {

// N images of H x W pixels and I channels become images of O channels. A kernel of KH x KW taps
// moves over the image, which is padded on all sides. With G groups, the outputs of group g see the
// channels of group g alone.
struct Conv2dShape {
  int64_t batch, height, width, channels;  // N, H, W, I
  int64_t outputs, kernel_h, kernel_w;     // O, KH, KW
  int64_t stride_h = 1, stride_w = 1;      // >= 1
  int64_t pad_h = 0, pad_w = 0;            // rows above and below, columns left and right; >= 0
  int64_t dilation_h = 1, dilation_w = 1;  // distance between neighbouring taps; >= 1
  int64_t groups = 1;                      // divides I and O

  // OH and OW; 0 where the kernel is larger than the padded image.
  int64_t out_height() const { return out_extent(height, kernel_h, stride_h, pad_h, dilation_h); }
  int64_t out_width() const { return out_extent(width, kernel_w, stride_w, pad_w, dilation_w); }
  int64_t group_channels() const { return channels / groups; }
  int64_t group_outputs() const { return outputs / groups; }
  int64_t out_pixels() const { return batch * out_height() * out_width(); }

  static constexpr int64_t out_extent(
      int64_t extent, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
    const int64_t room = extent + 2 * pad - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
  }
};

// Scratch memory for any of the functions below on this shape with so many threads; the same on
// every machine. `workspace` must be aligned to 64 bytes and hold as much for compute_threads();
// its contents are lost. Nothing else is allocated.
int64_t conv2d_workspace_bytes(const Conv2dShape& shape, int threads);

struct Conv2dForward {
  Conv2dShape shape;
  const float* x;     // (N, H, W, I)
  const float* w;     // (O, KH, KW, I/G)
  const float* bias;  // (O), or null
  Activation activation;
  float* y;  // (N, OH, OW, O): receives activation(conv(x, w) + bias); overlaps nothing
};
void conv2d_forward(const Conv2dForward& op, void* workspace);

// d_x = the gradient with respect to x; pixels that no output sees get 0.
void conv2d_backward_input(const Conv2dShape& shape,
                           const float* d_y,  // (N, OH, OW, O)
                           const float* w,    // (O, KH, KW, I/G)
                           float* d_x,        // (N, H, W, I); overlaps nothing
                           void* workspace);

// d_w = the gradient with respect to w, or d_w += when accumulating. (The gradient of the bias is
// linear_backward_bias() of d_y.)
void conv2d_backward_weight(const Conv2dShape& shape,
                            const float* d_y,  // (N, OH, OW, O)
                            const float* x,    // (N, H, W, I)
                            float* d_w,        // (O, KH, KW, I/G); overlaps nothing
                            bool accumulate,
                            void* workspace);

}  // namespace lockstep::cpu
