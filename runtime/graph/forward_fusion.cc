#include "runtime/graph/forward_fusion.h"

#include <algorithm>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/graph/ops/activation.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/conv2d.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/row_norm.h"
#include "runtime/graph/unread_ops.h"

namespace lockstep::graph {
namespace {

constexpr size_t kNone = ~size_t{0};

class ForwardFusion {
 public:
  explicit ForwardFusion(Graph& graph) : graph_(graph) {}

  void run() {
    each(&ForwardFusion::join_columns);
    each(&ForwardFusion::shorten);
    each(&ForwardFusion::fuse_shortcut);
    each(&ForwardFusion::fuse_activation);
    each(&ForwardFusion::shorten);
    each(&ForwardFusion::read_rows);
    each(&ForwardFusion::fuse_sum);
  }

 private:
  void each(void (ForwardFusion::*step)(size_t op)) {
    index();
    for (size_t i = 0; i < graph_.ops.size(); ++i) (this->*step)(i);
    graph_.drop_ops(dropped_);
  }

  // Finds the op that makes each tensor, and the ops that read it.
  void index() {
    makers_.assign(graph_.tensors.size(), kNone);
    readers_.assign(graph_.tensors.size(), {});
    dropped_.assign(graph_.ops.size(), false);
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      for (const TensorId id : graph_.ops[i].outputs)
        if (id != kNoTensor) makers_[static_cast<size_t>(id)] = i;
      for (const TensorId id : graph_.ops[i].inputs)
        if (id != kNoTensor) readers_[static_cast<size_t>(id)].push_back(i);
    }
  }

  const Op* maker(TensorId id, OpKind kind) const {
    const size_t op = makers_[static_cast<size_t>(id)];
    return op != kNone && graph_.ops[op].kind == kind ? &graph_.ops[op] : nullptr;
  }
  const std::vector<size_t>& readers(TensorId id) const {
    return readers_[static_cast<size_t>(id)];
  }
  bool is_kept(TensorId id) const {
    return id == graph_.result || graph_[id].role != Role::kActivation;
  }

  // The tensor whose columns from `first` on this tensor holds; kNoTensor if there is none.
  TensorId source_of_columns(TensorId id, int64_t first, int64_t rows, int64_t columns) const {
    while (const Op* reshape = maker(id, OpKind::kReshape)) id = reshape->inputs[RearrangeIn::kX];
    const Op* cut = maker(id, OpKind::kRearrange);
    if (cut == nullptr) return kNoTensor;
    const View& view = cut->as<RearrangeAttributes>().views.view;
    const TensorId source = cut->inputs[RearrangeIn::kX];
    const bool found = view.rank == 2 && view.offset == first && view.reads_everywhere() &&
                       view.dimensions[0].extent == rows && view.dimensions[1].extent == columns &&
                       view.dimensions[0].stride == graph_.shape(source).columns() &&
                       view.dimensions[1].stride == 1;
    return found ? source : kNoTensor;
  }

  void join_columns(size_t number) {
    Op& op = graph_.ops[number];
    if (op.kind != OpKind::kConcat) return;
    const auto& attributes = op.as<ConcatAttributes>();
    TensorId source = kNoTensor;
    int64_t first = 0;
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      const int64_t end = attributes.ends[k];
      const TensorId of = source_of_columns(op.inputs.at(k), first, attributes.rows, end - first);
      if (of == kNoTensor || (k > 0 && of != source)) return;
      source = of;
      first = end;
    }
    if (graph_.shape(source).columns() != first || graph_[source].role != Role::kActivation ||
        graph_.shape(source).elements() != graph_.shape(op.outputs[ConcatOut::kY]).elements())
      return;
    op = {OpKind::kReshape, op.name, {source}, op.outputs, {}};
  }

  // A linear layer reads rows, whatever the leading extents are.
  void read_rows(size_t number) {
    Op& op = graph_.ops[number];
    if (op.kind != OpKind::kLinear) return;
    TensorId& x = op.inputs[LinearIn::kX];
    const Op* reshape = maker(x, OpKind::kReshape);
    if (reshape == nullptr) return;
    const TensorId before = reshape->inputs[RearrangeIn::kX];
    if (graph_[before].role == Role::kActivation &&
        graph_.shape(before).columns() == graph_.shape(x).columns())
      x = before;
  }

  // Replaces a chain of reshapes by one reshape of the original tensor, or by that tensor itself.
  void shorten(size_t number) {
    Op& op = graph_.ops[number];
    if (op.kind != OpKind::kReshape) return;
    TensorId& x = op.inputs[RearrangeIn::kX];
    while (const Op* before = maker(x, OpKind::kReshape)) x = before->inputs[RearrangeIn::kX];
    const TensorId y = op.outputs[RearrangeOut::kY];
    if (is_kept(y) || !(graph_.shape(x) == graph_.shape(y)) || graph_[x].role == Role::kParameter)
      return;
    for (const size_t reader : readers(y)) std::ranges::replace(graph_.ops[reader].inputs, y, x);
  }

  // The norm takes the place of the sum, since the other term may be made after the norm.
  void fuse_shortcut(size_t number) {
    Op& op = graph_.ops[number];
    if (op.kind != OpKind::kAdd) return;
    const TensorId a = op.inputs[AddIn::kA], b = op.inputs[AddIn::kB];
    for (const auto& [y, delta] : {std::pair{a, b}, std::pair{b, a}}) {
      const Op* norm = maker(y, OpKind::kBatchNorm);
      if (norm == nullptr || readers(y).size() != 1 || is_kept(y) ||
          norm->inputs[BatchNormIn::kDelta] != kNoTensor ||
          norm->as<BatchNormAttributes>().activation != Activation::kNone ||
          graph_[delta].role != Role::kActivation || graph_[y].detached)
        continue;
      dropped_[makers_[static_cast<size_t>(y)]] = true;
      Op fused = *norm;
      fused.inputs[BatchNormIn::kDelta] = delta;
      fused.outputs[BatchNormOut::kY] = op.outputs[AddOut::kY];
      op = std::move(fused);
      return;
    }
  }

  void fuse_activation(size_t number) {
    const Op& op = graph_.ops[number];
    if (op.kind != OpKind::kActivation || is_kept(op.outputs[ActivationOut::kY])) return;
    const Activation activation = op.as<ActivationAttributes>().activation;
    const TensorId x = op.inputs[ActivationIn::kX], y = op.outputs[ActivationOut::kY];
    TensorId made = x;  // the layer's output; x may be a reshape of it
    if (readers(made).size() != 1 || is_kept(made)) return;
    while (const Op* reshape = maker(made, OpKind::kReshape)) {
      made = reshape->inputs[RearrangeIn::kX];
      if (readers(made).size() != 1 || is_kept(made)) return;
    }
    const size_t layer = makers_[static_cast<size_t>(made)];
    if (layer == kNone || !take_activation(graph_.ops[layer], activation)) return;
    for (const size_t reader : readers(y)) std::ranges::replace(graph_.ops[reader].inputs, y, x);
    readers_[static_cast<size_t>(x)] = readers(y);
    dropped_[number] = true;
  }

  bool take_activation(Op& layer, Activation activation) {
    if (layer.kind == OpKind::kConv2d) {
      Conv2dAttributes attributes = layer.as<Conv2dAttributes>();
      if (attributes.activation != Activation::kNone || saves_pre_activation(activation))
        return false;
      attributes.activation = activation;
      layer.attributes = attributes;
      return true;
    }
    if (layer.kind == OpKind::kBatchNorm) {
      BatchNormAttributes attributes = layer.as<BatchNormAttributes>();
      if (attributes.activation != Activation::kNone || activation != Activation::kRelu)
        return false;
      attributes.activation = activation;
      layer.attributes = attributes;
      return true;
    }
    if (layer.kind != OpKind::kLinear ||
        layer.as<LinearAttributes>().activation != Activation::kNone)
      return false;
    layer.attributes = LinearAttributes{activation};
    if (graph_.purpose == Purpose::kTraining && saves_pre_activation(activation)) {
      Tensor pre = graph_[layer.outputs[LinearOut::kY]];
      pre.name += ".pre";
      layer.outputs[LinearOut::kPre] = graph_.add(std::move(pre));
    }
    return true;
  }

  void fuse_sum(size_t number) {
    const OpKind kind = graph_.ops[number].kind;
    if (kind == OpKind::kLayerNorm || kind == OpKind::kRmsNorm)
      fuse_sum_into(number, RowNormIn::kX, RowNormIn::kDelta, RowNormOut::kSum);
  }

  void fuse_sum_into(size_t number, InputName x, InputName delta, OutputName norm_sum) {
    Op& norm = graph_.ops[number];
    const TensorId sum = norm.inputs[x];
    if (norm.inputs[delta] != kNoTensor || is_kept(sum)) return;
    const Op* add = maker(sum, OpKind::kAdd);
    if (add == nullptr || readers(sum).front() != number) return;
    const TensorId a = add->inputs[AddIn::kA], b = add->inputs[AddIn::kB];
    if (a == b || is_kept(a) || is_kept(b)) return;
    norm.inputs[x] = a;
    norm.inputs[delta] = b;
    norm.outputs[norm_sum] = sum;
    dropped_[makers_[static_cast<size_t>(sum)]] = true;
  }

  Graph& graph_;
  std::vector<size_t> makers_;                // by tensor: index of an op, or kNone
  std::vector<std::vector<size_t>> readers_;  // by tensor, in order
  std::vector<bool> dropped_;                 // by op
};

}  // namespace

void fuse_forward(Graph& graph) {
  LOCKSTEP_CHECK(graph.recomputed.empty() && graph.forward_ops == graph.ops.size());
  ForwardFusion(graph).run();
  graph.forward_ops = graph.ops.size();
  drop_unread_ops(graph);
}

}  // namespace lockstep::graph
