#include "runtime/graph/builder.h"

#include <algorithm>
#include <memory>
#include <type_traits>

#include "runtime/base/error.h"
#include "runtime/base/half.h"

namespace lockstep::graph {

TensorId GraphBuilder::tensor(std::string name, Shape shape, DType dtype, Role role) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.shape = shape;
  tensor.dtype = dtype;
  tensor.role = role;
  return graph_.add(std::move(tensor));
}

TensorId GraphBuilder::activation_tensor(const std::string& name, Shape shape) {
  return tensor(name, shape, options_.compute, Role::kActivation);
}

TensorId GraphBuilder::statistics_tensor(const std::string& name, Shape shape) {
  return tensor(name, shape, DType::kF32, Role::kActivation);
}

TensorId GraphBuilder::input(const std::string& name, Shape shape, DType dtype) {
  const TensorId id = tensor(name, shape, dtype, Role::kInput);
  graph_.inputs.push_back(id);
  return id;
}

TensorId GraphBuilder::parameter(const std::string& name,
                                 Shape shape,
                                 Initializer initializer,
                                 bool decay) {
  if (in_reference_) {
    const auto found = std::ranges::find_if(graph_.parameters,
                                            [&](TensorId id) { return graph_[id].name == name; });
    LOCKSTEP_CHECK(found != graph_.parameters.end() && graph_.shape(*found) == shape, "{} ", name);
    return *found;
  }
  const TensorId id = tensor(name, shape, options_.compute, Role::kParameter);
  graph_[id].initializer = initializer;
  graph_[id].decay = decay;
  graph_[id].level = graph_.blocks + (in_block_ || graph_.blocks == 0 ? 0 : 1);
  graph_.parameters.push_back(id);
  return id;
}

TensorId GraphBuilder::state(const std::string& name, Shape shape) {
  return tensor(name, shape, options_.compute, Role::kState);
}

namespace {

// The elements as stored in memory, each as a T.
template <typename T, typename From>
std::shared_ptr<const std::vector<std::byte>> bytes_of(const std::vector<From>& elements) {
  std::vector<T> stored;
  for (const From element : elements) {
    if constexpr (std::is_same_v<From, float>)
      stored.push_back(round_to<T>(element));
    else
      stored.push_back(element);
  }
  const auto* begin = reinterpret_cast<const std::byte*>(stored.data());
  return std::make_shared<const std::vector<std::byte>>(begin, begin + stored.size() * sizeof(T));
}

}  // namespace

TensorId GraphBuilder::constant(const std::string& name,
                                Shape shape,
                                const std::vector<float>& numbers,
                                std::optional<DType> type) {
  LOCKSTEP_CHECK(static_cast<int64_t>(numbers.size()) == shape.elements());
  const DType stored = type.value_or(options_.compute);
  const TensorId id = tensor(name, shape, stored, Role::kConstant);
  graph_[id].constant = stored == DType::kBF16  ? bytes_of<BFloat16>(numbers)
                        : stored == DType::kF16 ? bytes_of<Float16>(numbers)
                                                : bytes_of<float>(numbers);
  return id;
}

TensorId GraphBuilder::constant(const std::string& name,
                                Shape shape,
                                const std::vector<int32_t>& integers) {
  LOCKSTEP_CHECK(static_cast<int64_t>(integers.size()) == shape.elements());
  const TensorId id = tensor(name, shape, DType::kI32, Role::kConstant);
  graph_[id].constant = bytes_of<int32_t>(integers);
  return id;
}

TensorId GraphBuilder::running_statistic(const std::string& name,
                                         Shape shape,
                                         float initial,
                                         float momentum) {
  const TensorId id = parameter(name, shape, {Initializer::Kind::kConstant, initial}, false);
  graph_[id].running_momentum = momentum;
  return id;
}

void GraphBuilder::set_channels_last(TensorId parameter, Shape extents) {
  LOCKSTEP_CHECK(extents.rank() >= 3 && extents.rank() <= 5 &&
                 extents.elements() == graph_.shape(parameter).elements());
  graph_[parameter].channels_last = extents;
}

void GraphBuilder::set_row_parts(TensorId parameter, std::vector<int64_t> rows) {
  int64_t all = 0;
  for (const int64_t part : rows) all += part;
  LOCKSTEP_CHECK(all == graph_.shape(parameter)[0], "{} of {} rows ", all, graph_[parameter].name);
  graph_[parameter].row_parts = std::move(rows);
}

void GraphBuilder::begin_reference() {
  LOCKSTEP_CHECK(!in_block_ && !in_reference_);
  in_reference_ = true;
}

void GraphBuilder::end_reference() { in_reference_ = false; }

void GraphBuilder::begin_block() {
  if (in_reference_) return;
  ++graph_.blocks;
  in_block_ = true;
  if (training() && options_.recompute) graph_.recomputed.push_back({graph_.ops.size(), 0});
}

void GraphBuilder::end_block() {
  in_block_ = false;
  if (training() && options_.recompute) graph_.recomputed.back().end = graph_.ops.size();
}

void GraphBuilder::append_loss(OpKind kind,
                               TensorId prediction,
                               TensorId target,
                               Attributes attributes,
                               const std::vector<TensorId>& parameters) {
  std::vector<TensorId> inputs = {prediction};
  if (target != kNoTensor) inputs.push_back(target);
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  losses_.push_back(append_result(kind, std::move(inputs), std::move(attributes)));
  graph_.loss_rows_per_sample = graph_.shape(prediction).rows() / graph_.shape(prediction)[0];
}

TensorId GraphBuilder::append_result(OpKind kind,
                                     std::vector<TensorId> inputs,
                                     Attributes attributes) {
  const TensorId statistics = tensor("statistics", {kStatisticCount}, DType::kF64, Role::kResult);
  append({kind, name_of(kind), std::move(inputs), {statistics}, std::move(attributes)});
  return graph_.result = statistics;
}

void GraphBuilder::keep(TensorId output) {
  graph_[output].role = Role::kResult;
  graph_.result = output;
}

Graph GraphBuilder::finish() && {
  LOCKSTEP_CHECK(graph_.result != kNoTensor, "the graph has no loss and no output ");
  graph_.forward_ops = graph_.ops.size();
  return std::move(graph_);
}

}  // namespace lockstep::graph
