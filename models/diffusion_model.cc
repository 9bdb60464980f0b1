#include "models/diffusion_model.h"

#include <vector>

#include "runtime/config/limits.h"
#include "runtime/graph/diffusion_schedule.h"
#include "runtime/graph/ops/cast.h"
#include "runtime/graph/ops/diffusion_noise.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/pointwise_losses.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::models {
namespace {

// (2, times): the weights of image and noise at each time. kNoTensor for flow matching, whose times
// are drawn from [0, 1).
TensorId shares_of(graph::GraphBuilder& builder, DiffusionSchedule schedule) {
  if (schedule == DiffusionSchedule::kFlowMatching) return kNoTensor;
  std::vector<float> rows[2];
  for (const graph::DiffusionShares& share : graph::diffusion_shares(schedule)) {
    rows[0].push_back(static_cast<float>(share.image));
    rows[1].push_back(static_cast<float>(share.noise));
  }
  rows[0].insert(rows[0].end(), rows[1].begin(), rows[1].end());
  return builder.constant("shares", {2, graph::kDiffusionTimes}, rows[0], DType::kF32);
}

DenoiserInputs inference_inputs(graph::GraphBuilder& builder, const Shape& images) {
  const int64_t samples = images[0];
  const TensorId noised = builder.input("noised", images, DType::kF32);
  const TensorId conditions = builder.input("conditions", {samples, 2}, DType::kF32);
  const auto column = [&](const std::string& name, int64_t number) {
    const TensorId part =
        ops::slice(builder, name + ".column", conditions, {0, number}, {1, 1}, {samples, 1});
    return ops::reshape(builder, name, part, {samples});
  };
  graph::PointwiseProgram identity;
  identity.append(graph::PointwiseFunction::kIdentity, identity.input(0));
  return {.images = ops::cast(builder, "noised.cast", noised),
          .times = column("times", 0),
          .classes = ops::pointwise(
              builder, "classes", {column("classes.floats", 1)}, identity, /*integers=*/true)};
}

}  // namespace

void check_diffusion(const std::string& section,
                     DiffusionSchedule schedule,
                     DiffusionTarget target) {
  if (schedule == DiffusionSchedule::kFlowMatching && target != DiffusionTarget::kVelocity)
    config::refuse_value(section + ".target",
                         name_of(target),
                         "VELOCITY with " + section + ".schedule FLOW_MATCHING");
}

DenoiserInputs denoiser_inputs(graph::GraphBuilder& builder,
                               const ModelIo& io,
                               int64_t lane_batch,
                               const Diffusion& diffusion) {
  const Shape images = {lane_batch, io.height, io.width, io.channels};
  if (builder.options().purpose == graph::Purpose::kInference)
    return inference_inputs(builder, images);
  const TensorId pixels = builder.input("images", images, DType::kU8);
  const TensorId labels = builder.input("labels", {lane_batch}, DType::kI32);
  const ops::NoisedImages noised =
      ops::diffusion_noise(builder,
                           "noised",
                           pixels,
                           labels,
                           shares_of(builder, diffusion.schedule),
                           {.target = diffusion.target,
                            .label_dropout = diffusion.label_dropout,
                            .classes = static_cast<int32_t>(diffusion.classes)});
  return {noised.images, noised.times, noised.classes, noised.target};
}

void end_denoiser(graph::GraphBuilder& builder, TensorId predicted, const DenoiserInputs& inputs) {
  if (inputs.target == kNoTensor) return builder.keep(predicted);
  ops::mean_squared_error(builder, predicted, inputs.target);
}

}  // namespace lockstep::models
