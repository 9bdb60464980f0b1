#include "runtime/graph/ops/diffusion_noise.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

ops::NoisedImages ops::diffusion_noise(GraphBuilder& builder,
                                       const std::string& name,
                                       TensorId x,
                                       TensorId labels,
                                       TensorId shares,
                                       const DiffusionNoiseAttributes& attributes) {
  const Shape shape = builder.shape(x);
  LOCKSTEP_CHECK(shape.rank() == 4 && builder[x].dtype == DType::kU8, "{}: x ", name);
  LOCKSTEP_CHECK(builder.shape(labels) == Shape({shape[0]}), "{}: labels ", name);
  LOCKSTEP_CHECK(
      shares == kNoTensor || (builder.shape(shares).rank() == 2 && builder.shape(shares)[0] == 2 &&
                              builder[shares].dtype == DType::kF32),
      "{}: shares ",
      name);
  DiffusionNoiseAttributes drawn = attributes;
  // The lowest bit separates the noise from the other random numbers.
  drawn.purpose = kRngNoise | (builder.training() ? 0u : 2u);
  if (!builder.training()) drawn.label_dropout = 0;
  const NoisedImages noised = {
      .images = builder.activation_tensor(name, shape),
      .target =
          builder.statistics_tensor(name + ".target", {shape[0], shape.elements() / shape[0]}),
      .times = builder.statistics_tensor(name + ".times", {shape[0]}),
      .classes = builder.tensor(name + ".classes", {shape[0]}, DType::kI32, Role::kActivation)};
  builder.append({OpKind::kDiffusionNoise,
                  name,
                  {x, labels, shares},
                  {noised.images, noised.target, noised.times, noised.classes},
                  drawn});
  return noised;
}

namespace {

// Per element: ten rounds of the generator, the normal quantile and the mixing.
int64_t diffusion_noise_flops(const Graph& graph, const Op& op) {
  return 30 * graph.shape(op.inputs[DiffusionNoiseIn::kX]).elements();
}

}  // namespace

const OpSchema kDiffusionNoiseSchema = {nullptr, diffusion_noise_flops, {}};

}  // namespace lockstep::graph
