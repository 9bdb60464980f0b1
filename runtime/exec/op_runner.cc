#include "runtime/exec/op_runner.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/half.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/schema.h"

namespace lockstep::exec {
namespace {

constexpr size_t kAlignment = 256;
size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The gradient that a loss writes over its prediction.
TensorId over_prediction(const graph::Graph& graph) {
  for (const graph::Op& op : graph.ops) {
    if (graph::schema_of(op.kind).is_loss && op.outputs.size() > 1)
      return op.outputs[graph::LossOut::kGradient];
  }
  return kNoTensor;
}

size_t largest_workspace(const graph::Graph& graph, const OpSet& ops) {
  size_t max_bytes = 0;
  for (const graph::Op& op : graph.ops)
    max_bytes = std::max(max_bytes, ops.op_workspace_bytes(graph, op));
  return max_bytes;
}

// Calls f with the C++ type of `dtype` as its template argument.
template <typename F>
void with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kF32: return f.template operator()<float>();
    case DType::kF64: return f.template operator()<double>();
    case DType::kI32: return f.template operator()<int32_t>();
    case DType::kU8: return f.template operator()<uint8_t>();
    case DType::kBF16: return f.template operator()<BFloat16>();
    case DType::kF16: return f.template operator()<Float16>();
  }
}

template <typename T>
double widen(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return to_float(value);
  }
}

template <typename T>
T narrow(double value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    return round_to<T>(static_cast<float>(value));
  }
}

// Calls f(index of the element, offset of the element in memory) for every element.
template <typename F>
void each_element(const graph::Tensor& tensor, F f) {
  const int64_t columns = tensor.shape.columns(), stride = tensor.row_stride();
  for (int64_t i = 0; i < tensor.shape.elements(); ++i)
    f(static_cast<size_t>(i), static_cast<size_t>(i / columns * stride + i % columns));
}

}  // namespace

size_t OpRunner::device_bytes(const graph::Graph& graph, const OpSet& ops) {
  size_t bytes = aligned(largest_workspace(graph, ops));
  for (const graph::Tensor& tensor : graph.tensors) bytes += aligned(tensor.bytes());
  return bytes;
}

OpRunner::OpRunner(const graph::Graph& graph, Backend& backend)
    : graph_(graph),
      backend_(backend),
      tensors_(graph.tensors.size(), nullptr),
      lane_(backend.host_array<graph::LaneContext>(1)) {
  // All in one piece: on the CPU each allocation takes whole pages of 2 MiB.
  std::byte* at = backend.allocate(device_bytes(graph, backend.ops()), "tensors and workspace");
  size_t largest = 0;
  for (size_t id = 0; id < tensors_.size(); ++id) {
    largest = std::max(largest, graph.tensors[id].bytes());
    tensors_[id] = at;
    at += aligned(graph.tensors[id].bytes());
  }
  workspace_ = at;
  const TensorId gradient = over_prediction(graph);
  if (gradient != kNoTensor) {
    for (const graph::Op& op : graph.ops) {
      if (graph::schema_of(op.kind).is_loss)
        tensors_[static_cast<size_t>(gradient)] =
            tensors_[static_cast<size_t>(op.inputs[graph::LossIn::kPrediction])];
    }
  }
  for (const graph::Op& op : graph.ops)
    implementations_.push_back(&backend.ops().choose(graph, op, backend.launch_context()));
  staging_ = {backend.allocate_host(largest), largest};
  for (size_t id = 0; id < tensors_.size(); ++id) {
    if (graph.tensors[id].role != graph::Role::kConstant) continue;
    std::ranges::copy(*graph.tensors[id].constant, staging_.data());
    backend.copy(staging_.data(), tensors_[id], graph.tensors[id].bytes());
    backend.synchronize();  // the staging is reused
  }
}

std::vector<double> OpRunner::read(TensorId id) {
  const graph::Tensor& tensor = graph_[id];
  backend_.copy(tensors_[static_cast<size_t>(id)], staging_.data(), tensor.bytes());
  backend_.synchronize();
  std::vector<double> elements(static_cast<size_t>(tensor.shape.elements()));
  with_type(tensor.dtype, [&]<typename T>() {
    const auto* from = reinterpret_cast<const T*>(staging_.data());
    each_element(tensor, [&](size_t i, size_t at) { elements[i] = widen(from[at]); });
  });
  return elements;
}

void OpRunner::write(TensorId id, std::span<const double> elements) {
  const graph::Tensor& tensor = graph_[id];
  LOCKSTEP_CHECK(elements.size() == static_cast<size_t>(tensor.shape.elements()));
  backend_.synchronize();  // the staging may still be in use
  std::fill_n(staging_.data(), tensor.bytes(), std::byte{0});
  with_type(tensor.dtype, [&]<typename T>() {
    auto* to = reinterpret_cast<T*>(staging_.data());
    each_element(tensor, [&](size_t i, size_t at) { to[at] = narrow<T>(elements[i]); });
  });
  backend_.copy(staging_.data(), tensors_[static_cast<size_t>(id)], tensor.bytes());
  backend_.synchronize();
}

void OpRunner::begin(const graph::LaneContext& lane) {
  backend_.synchronize();  // the previous lane may still be read
  lane_.front() = lane;
  backend_.begin_lane(lane_.front());
}

// Fills the output as if all lanes had the same input.
void OpRunner::gather_lanes(const graph::Op& op) {
  const auto in = static_cast<size_t>(op.inputs[graph::GatherLanesIn::kLane]);
  const auto out = static_cast<size_t>(op.outputs[graph::GatherLanesOut::kAll]);
  const size_t bytes = graph_.tensors[in].bytes(), all = graph_.tensors[out].bytes();
  for (size_t at = 0; at < all; at += bytes) backend_.copy(tensors_[in], tensors_[out] + at, bytes);
}

void OpRunner::run(size_t op) {
  if (graph_.ops[op].kind == graph::OpKind::kGatherLanes) return gather_lanes(graph_.ops[op]);
  implementations_[op]->run(graph::OpCall(graph_,
                                          graph_.ops[op],
                                          tensors_.data(),
                                          workspace_,
                                          lane_.front(),
                                          backend_.launch_context()));
}

}  // namespace lockstep::exec
