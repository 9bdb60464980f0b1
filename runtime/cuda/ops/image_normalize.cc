#include "runtime/graph/ops/image_normalize.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/image_normalize.h"
#include "runtime/cuda/ops/implementations.h"

namespace lockstep::cuda {
namespace {

// Elements that a kernel numbers in 32 bits.
constexpr int64_t kMostNumbered = (int64_t{1} << 31) - 1;

bool supports_image_normalize(const OpCall& op) {
  const Shape& x = op.input_shape(0);
  return x.columns() <= kMostImageChannels && x.elements() <= kMostNumbered;
}

void run_image_normalize(const OpCall& call) {
  const auto& attributes = call.attributes<ImageNormalizeAttributes>();
  by_type(call.output_dtype(0), [&]<typename T>() {
    const Shape& x = call.input_shape(0);
    image_normalize<T>({.images = x[0],
                        .pixels = x[1] * x[2],
                        .x = call.input<uint8_t>(0),
                        .mean = attributes.mean,
                        .std = attributes.std,
                        .lane = context_of(call).lane,
                        .y = call.output<T>(0)},
                       stream_of(call));
  });
}

constexpr Implementation kRows[] = {
    {.kind = OpKind::kImageNormalize,
     .name = "own",
     .run = run_image_normalize,
     .supports = supports_image_normalize},
};

}  // namespace

constinit const Implementations kCudaImageNormalize = kRows;

}  // namespace lockstep::cuda
