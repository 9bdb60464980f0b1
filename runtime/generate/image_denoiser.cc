#include "runtime/generate/image_denoiser.h"

#include "runtime/exec/host_copy.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/memory_plan.h"
#include "runtime/train/state/initialize.h"

namespace lockstep::generate {

ImageDenoiser::ImageDenoiser(std::unique_ptr<exec::Backend> backend,
                             const models::OpenedModel& model,
                             const models::ModelIo& io,
                             int64_t images,
                             const ReadWeights& read_weights)
    : images_(images),
      elements_(io.height * io.width * io.channels),
      backend_(std::move(backend)),
      layout_(
          plan::make_layout(model.build(io, model.fewest_samples(), graph::Purpose::kTraining), 1)),
      graph_(model.build(io, images, graph::Purpose::kInference)),
      plan_(plan::plan_program(graph_,
                               [this](const graph::Graph& graph, const graph::Op& op) {
                                 return backend_->ops().op_workspace_bytes(graph, op);
                               })),
      noised_(backend_->host_array<float>(static_cast<size_t>(images * elements_))),
      conditions_(backend_->host_array<float>(static_cast<size_t>(images * 2))),
      result_(backend_->host_array<float>(noised_.size())),
      lane_(backend_->host_array<graph::LaneContext>(1)) {
  const size_t parameter_bytes = static_cast<size_t>(layout_.elements) * sizeof(float);
  backend_->reserve(backend_->ops().workspace_bytes + parameter_bytes + plan_.arena_bytes +
                    plan_.constant_bytes + noised_.size_bytes() + conditions_.size_bytes() +
                    5 * plan::kDeviceAlignment);
  std::byte* const parameters =
      backend_->allocate(parameter_bytes, plan::name_of(plan::RowKind::kParameters));
  exec::HostCopy weights(*backend_, reinterpret_cast<float*>(parameters), layout_.elements);
  read_weights(train::named_slices(layout_), weights.data());
  weights.write();
  executor_.emplace(
      graph_,
      plan_,
      layout_,
      *backend_,
      exec::ExecutorMemory{
          .arena = backend_->allocate(plan_.arena_bytes, plan::name_of(plan::RowKind::kArena)),
          .parameters = parameters,
          .constants = backend_->allocate(plan_.constant_bytes, "tables")});
  device_noised_ = backend_->allocate(noised_.size_bytes(), "images");
  device_conditions_ = backend_->allocate(conditions_.size_bytes(), "times and classes");
}

void ImageDenoiser::set_condition(int64_t image, float time, int32_t class_index) {
  conditions_[static_cast<size_t>(2 * image)] = time;
  conditions_[static_cast<size_t>(2 * image + 1)] = static_cast<float>(class_index);
}

std::span<const float> ImageDenoiser::run() {
  const auto bytes = [](std::span<float> numbers) {
    return reinterpret_cast<std::byte*>(numbers.data());
  };
  backend_->copy(bytes(noised_), device_noised_, noised_.size_bytes());
  backend_->copy(bytes(conditions_), device_conditions_, conditions_.size_bytes());
  executor_->run(
      lane_.front(), device_noised_, device_conditions_, nullptr, nullptr, bytes(result_));
  backend_->synchronize();
  return result_;
}

}  // namespace lockstep::generate
