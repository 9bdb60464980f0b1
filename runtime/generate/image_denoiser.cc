#include "runtime/generate/image_denoiser.h"

#include "runtime/plan/memory_plan.h"
#include "runtime/train/number_types.h"

namespace lockstep::generate {
namespace {

graph::GraphOptions options_for(graph::Purpose purpose, DType compute) {
  graph::GraphOptions options(purpose);
  options.compute = compute;
  return options;
}

}  // namespace

ImageDenoiser::ImageDenoiser(std::unique_ptr<exec::Backend> backend,
                             const models::OpenedModel& model,
                             const models::ModelIo& io,
                             DType compute,
                             int64_t images,
                             const ReadWeights& read_weights)
    : images_(images),
      elements_(io.height * io.width * io.channels),
      backend_(std::move(backend)),
      layout_(plan::make_layout(
          model.build(io, model.fewest_samples(), options_for(graph::Purpose::kTraining, compute)),
          1)),
      graph_(model.build(io, images, options_for(graph::Purpose::kInference, compute))),
      plan_(plan::plan_program(graph_,
                               [this](const graph::Graph& graph, const graph::Op& op) {
                                 return backend_->ops().op_workspace_bytes(graph, op);
                               })),
      noised_(backend_->host_array<float>(static_cast<size_t>(images * elements_))),
      conditions_(backend_->host_array<float>(static_cast<size_t>(images * 2))),
      result_(backend_->host_array<std::byte>(graph_[graph_.result].bytes())),
      outputs_(noised_.size()),
      lane_(backend_->host_array<graph::LaneContext>(1)) {
  backend_->reserve(backend_->ops().workspace_bytes + weight_bytes(layout_) + plan_.arena_bytes +
                    plan_.constant_bytes + noised_.size_bytes() + conditions_.size_bytes() +
                    5 * plan::kDeviceAlignment);
  std::byte* const parameters = allocate_weights(*backend_, layout_, read_weights);
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
      lane_.front(), device_noised_, device_conditions_, nullptr, nullptr, result_.data());
  backend_->synchronize();
  train::widen_numbers(result_.data(), graph_[graph_.result].dtype, outputs_);
  return outputs_;
}

}  // namespace lockstep::generate
