#include "runtime/graph/fusion.h"

#include <algorithm>

#include "runtime/graph/ops/activation.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/conv2d.h"
#include "runtime/graph/ops/linear.h"

namespace lockstep::graph {
namespace {

std::vector<int> count_readers(const Graph& graph) {
  std::vector<int> readers(graph.tensors.size(), 0);
  for (const Op& op : graph.ops) {
    for (TensorId id : op.inputs) {
      if (id != kNoTensor) ++readers[static_cast<size_t>(id)];
    }
  }
  return readers;
}

constexpr size_t kNone = ~size_t{0};

// Makes one op of a conv2d and the batch_norm that reads it.
Op conv2d_batch_norm(const Op& conv, const Op& norm) {
  return {OpKind::kConv2dBatchNorm,
          conv.name,
          {conv.inputs[Conv2dIn::kX],
           conv.inputs[Conv2dIn::kWeight],
           conv.inputs[Conv2dIn::kBias],
           norm.inputs[BatchNormIn::kGamma],
           norm.inputs[BatchNormIn::kBeta],
           norm.inputs[BatchNormIn::kRunningMean],
           norm.inputs[BatchNormIn::kRunningVariance],
           norm.inputs[BatchNormIn::kDelta]},
          norm.outputs,
          Conv2dBatchNormAttributes{conv.as<Conv2dAttributes>(), norm.as<BatchNormAttributes>()}};
}

bool sums_gradients(const Op& op) {
  return op.kind == OpKind::kBatchNormBackward || op.kind == OpKind::kBatchNormSums;
}

}  // namespace

void fuse_activation_backward(Graph& graph) {
  const std::vector<int> readers = count_readers(graph);
  // by tensor: the linear_backward that makes it as d_x
  std::vector<size_t> maker(graph.tensors.size(), kNone);
  std::vector<bool> fused(graph.ops.size(), false);
  for (size_t i = graph.forward_ops; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    const TensorId d_x =
        op.kind == OpKind::kLinearBackward ? op.outputs[LinearBackwardOut::kDX] : kNoTensor;
    if (d_x != kNoTensor) maker[static_cast<size_t>(d_x)] = i;
    if (op.kind != OpKind::kActivationBackward) continue;
    const auto d_y = static_cast<size_t>(op.inputs[ActivationBackwardIn::kDY]);
    if (maker[d_y] == kNone || readers[d_y] != 1) continue;
    Op& linear = graph.ops[maker[d_y]];
    linear.inputs[LinearBackwardIn::kSaved] = op.inputs[ActivationBackwardIn::kSaved];
    linear.outputs[LinearBackwardOut::kDX] = op.outputs[ActivationBackwardOut::kDX];
    LinearBackwardAttributes attributes = linear.as<LinearBackwardAttributes>();
    attributes.input_activation = op.as<ActivationAttributes>().activation;
    linear.attributes = attributes;
    fused[i] = true;
  }
  graph.drop_ops(fused);
}

void fuse_gradient_sums(Graph& graph) {
  const std::vector<int> readers = count_readers(graph);
  // by tensor: the add whose sum it is, unless an op has read it
  std::vector<size_t> maker(graph.tensors.size(), kNone);
  std::vector<bool> fused(graph.ops.size(), false);
  for (size_t i = graph.forward_ops; i < graph.ops.size(); ++i) {
    Op& op = graph.ops[i];
    const TensorId d_y = sums_gradients(op) ? op.inputs[BatchNormBackwardIn::kDY] : kNoTensor;
    const size_t add = d_y != kNoTensor ? maker[static_cast<size_t>(d_y)] : kNone;
    for (const TensorId id : op.inputs)
      if (id != kNoTensor) maker[static_cast<size_t>(id)] = kNone;
    if (op.kind == OpKind::kAdd) maker[static_cast<size_t>(op.outputs[AddOut::kY])] = i;
    if (add == kNone) continue;
    const bool alone = readers[static_cast<size_t>(d_y)] == 1;
    const bool masked = op.as<BatchNormAttributes>().activation != Activation::kNone;
    TensorId& d_delta = op.outputs[BatchNormBackwardOut::kDDelta];
    if (!alone && (masked || d_delta != kNoTensor)) continue;
    if (!alone) d_delta = d_y;
    const Op& sum = graph.ops[add];
    op.inputs[BatchNormBackwardIn::kDY] = sum.inputs[AddIn::kA];
    op.inputs[BatchNormBackwardIn::kDY2] = sum.inputs[AddIn::kB];
    fused[add] = true;
  }
  graph.drop_ops(fused);
}

void save_relu_masks(Graph& graph, const Supports& supports) {
  constexpr int64_t kBits = 8;
  if (graph.purpose != Purpose::kTraining) return;
  // by tensor: the batch_norm whose y it is
  std::vector<size_t> maker(graph.tensors.size(), kNone);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (graph.ops[i].kind == OpKind::kBatchNorm)
      maker[static_cast<size_t>(graph.ops[i].outputs[BatchNormOut::kY])] = i;
    if (!sums_gradients(graph.ops[i])) continue;
    Op backward = graph.ops[i];
    const TensorId y = backward.inputs[BatchNormBackwardIn::kY];
    if (y == kNoTensor || graph.shape(y).columns() % kBits != 0) continue;
    const size_t norm_number = maker[static_cast<size_t>(y)];
    if (norm_number == kNone) continue;
    Op norm = graph.ops[norm_number];
    Tensor mask;
    mask.name = graph[y].name + ".mask";
    mask.shape = {graph.shape(y).rows(), graph.shape(y).columns() / kBits};
    mask.dtype = DType::kU8;
    const TensorId id = graph.add(std::move(mask));
    norm.outputs.resize(static_cast<size_t>(BatchNormOut::kMask) + 1, kNoTensor);
    norm.outputs[BatchNormOut::kMask] = id;
    backward.inputs[BatchNormBackwardIn::kY] = kNoTensor;
    backward.inputs[BatchNormBackwardIn::kMask] = id;
    if (supports(graph, norm) && supports(graph, backward)) {
      graph.ops[norm_number] = std::move(norm);
      graph.ops[i] = std::move(backward);
    } else {
      graph.tensors.pop_back();
    }
  }
}

void fuse_batch_norms(Graph& graph, const Supports& supports) {
  if (graph.purpose == Purpose::kTraining) return;
  const std::vector<int> readers = count_readers(graph);
  // by tensor: the conv2d whose output it is
  std::vector<size_t> maker(graph.tensors.size(), kNone);
  std::vector<bool> fused(graph.ops.size(), false);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    Op& op = graph.ops[i];
    if (op.kind == OpKind::kConv2d && op.as<Conv2dAttributes>().activation == Activation::kNone)
      maker[static_cast<size_t>(op.outputs[Conv2dOut::kY])] = i;
    if (op.kind != OpKind::kBatchNorm) continue;
    const auto between = static_cast<size_t>(op.inputs[BatchNormIn::kX]);
    const size_t conv_number = maker[between];
    if (conv_number == kNone || readers[between] != 1 ||
        graph.tensors[between].role != Role::kActivation)
      continue;
    Op both = conv2d_batch_norm(graph.ops[conv_number], op);
    if (!supports(graph, both)) continue;
    op = std::move(both);
    fused[conv_number] = true;
  }
  graph.drop_ops(fused);
  graph.forward_ops = graph.ops.size();
}

}  // namespace lockstep::graph
