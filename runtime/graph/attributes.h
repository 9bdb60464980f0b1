#pragma once
// What an op is told beside its tensors. Each backward op carries the attributes of its forward op,
// unless it has its own. Plain data.

#include <cstdint>
#include <variant>
#include <vector>

#include "runtime/graph/activation.h"

namespace lockstep {

struct LinearAttributes {
  Activation activation = Activation::kNone;
};
struct LinearBackwardAttributes {
  bool accumulate_weight = false;  // d_weight += instead of =
  bool accumulate_bias = false;
  Activation input_activation = Activation::kNone;  // whose derivative multiplies d_x
};
struct ActivationAttributes {
  Activation activation = Activation::kNone;
};
struct EmbeddingAttributes {
  bool accumulate_token = false;  // backward only: d_token += instead of =
  bool accumulate_position = false;
};
struct LayerNormAttributes {
  float epsilon = 1e-5f;
};
struct AttentionAttributes {
  int64_t heads = 1;
  bool causal = true;
};
struct DropoutAttributes {
  float probability = 0;
  uint32_t stream = 0;  // number of this dropout in the graph: part of the random stream's purpose
};
struct LossAttributes {
  float label_smoothing = 0;
  int32_t ignore_index = -1;  // softmax cross-entropy: targets equal to it do not count
};
// Two extents of an image, or of what slides over it.
struct Extent2d {
  int64_t height = 1, width = 1;
  bool operator==(const Extent2d&) const = default;
};

struct ImageNormalizeAttributes {
  std::vector<float> mean, std;  // (C) each, of pixels in [0, 1]
};
struct Conv2dAttributes {
  Extent2d stride;
  Extent2d padding{0, 0};  // zeros on each side
  Extent2d dilation;
  int64_t groups = 1;
  Activation activation = Activation::kNone;  // one that does not save its input
};
struct Conv2dBackwardAttributes {
  Conv2dAttributes forward;
  bool accumulate_weight = false;  // d_weight += instead of =
  bool accumulate_bias = false;
};
struct BatchNormAttributes {
  float epsilon = 1e-5f;
  Activation activation = Activation::kNone;  // or kRelu
  // Training: statistics of all lanes together, not of each one's batch.
  bool synchronised = false;
  int64_t lanes = 1;  // then, of the run
};
struct Conv2dBatchNormAttributes {
  Conv2dAttributes conv;  // without an activation
  BatchNormAttributes norm;
};
struct PoolAttributes {
  Extent2d kernel, stride;
  Extent2d padding{0, 0};         // on each side; less than the kernel
  bool count_include_pad = true;  // avg_pool: divide by the kernel's area at the border too
};
struct LocalResponseNormAttributes {
  int64_t size = 5;  // channels of the window
  float alpha = 1e-4f, beta = 0.75f, k = 1;
};
struct PaddedIdentityAttributes {
  int64_t stride = 1;
  int64_t before = 0, after = 0;  // channels of zeros
};

// Those of one op. Made, copied and destroyed in attributes.cc: what a variant of so many types
// needs for it would be compiled in every file that sees an op.
struct Attributes : std::variant<std::monostate,
                                 LinearAttributes,
                                 LinearBackwardAttributes,
                                 ActivationAttributes,
                                 EmbeddingAttributes,
                                 LayerNormAttributes,
                                 AttentionAttributes,
                                 DropoutAttributes,
                                 LossAttributes,
                                 ImageNormalizeAttributes,
                                 Conv2dAttributes,
                                 Conv2dBackwardAttributes,
                                 BatchNormAttributes,
                                 Conv2dBatchNormAttributes,
                                 PoolAttributes,
                                 LocalResponseNormAttributes,
                                 PaddedIdentityAttributes> {
  using variant::variant;
  Attributes();
  Attributes(const Attributes& other);
  Attributes(Attributes&& other) noexcept;
  Attributes& operator=(const Attributes& other);
  Attributes& operator=(Attributes&& other) noexcept;
  ~Attributes();
};

}  // namespace lockstep
