// Layers that read rows, and elementwise ops.
#include <cmath>

#include "models/onnx/from_graph/op_rows.h"
#include "runtime/graph/ops/activation.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/gated_activation.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/row_norm.h"

namespace lockstep::onnx {
namespace {

using namespace graph;

// A linear layer of images reads (N, H, W, C) as rows. Its weights in files, and so here, belong to
// rows of (C, H, W).
std::string rows_of(GraphWriter& writer, TensorId x, const Tensor& weight) {
  const bool flattens = writer.shape(x).columns() != weight.shape[1];
  const bool of_images = weight.channels_last.rank() == 4;
  if (!flattens && !of_images) return writer.plain(x);
  if (of_images && writer.shape(x).rank() != 4) writer.refuse("an input that is no image");
  const std::string value = of_images ? writer.channels_first(x) : writer.plain(x);
  return writer.node("Flatten", {value}, {{"axis", int64_t{1}}});
}

void write_linear(GraphWriter& writer, const Op& op) {
  const TensorId weight = op.inputs[LinearIn::kWeight], bias = op.inputs[LinearIn::kBias],
                 y = op.outputs[LinearOut::kY];
  const std::string x = rows_of(writer, op.inputs[LinearIn::kX], writer.graph()[weight]);
  const std::string w = writer.plain(weight);
  std::string product;
  if (writer.shape(y).rank() == 2) {
    Names inputs = {x, w};
    if (bias != kNoTensor) inputs.push_back(writer.plain(bias));
    product = writer.node("Gemm", inputs, {{"transB", int64_t{1}}});
  } else {
    const std::string transposed = writer.shared("transposed " + w, [&] {
      return writer.node("Transpose", {w}, {{"perm", std::vector<int64_t>{1, 0}}});
    });
    product = writer.node("MatMul", {x, transposed});
    if (bias != kNoTensor) product = writer.node("Add", {product, writer.plain(bias)});
  }
  writer.set(y, activated(writer, product, op.as<LinearAttributes>().activation));
}

// Writes an elementwise op in the layout of x.
template <typename Write>
void write_elementwise(GraphWriter& writer, TensorId x, TensorId y, const Write& write) {
  if (writer.is_channels_first(x))
    writer.set_channels_first(y, write([&](TensorId id) { return writer.channels_first(id); }));
  else
    writer.set(y, write([&](TensorId id) { return writer.plain(id); }));
}

void write_activation(GraphWriter& writer, const Op& op) {
  const TensorId x = op.inputs[ActivationIn::kX];
  write_elementwise(writer, x, op.outputs[ActivationOut::kY], [&](const auto& value) {
    return activated(writer, value(x), op.as<ActivationAttributes>().activation);
  });
}

void write_add(GraphWriter& writer, const Op& op) {
  const TensorId a = op.inputs[AddIn::kA], b = op.inputs[AddIn::kB];
  write_elementwise(writer, a, op.outputs[AddOut::kY], [&](const auto& value) {
    return writer.node("Add", {value(a), value(b)});
  });
}

void write_gated_activation(GraphWriter& writer, const Op& op) {
  const int64_t columns = writer.shape(op.outputs[GatedActivationOut::kY]).columns();
  const Names parts =
      writer.split(writer.plain(op.inputs[GatedActivationIn::kX]), -1, {columns, columns});
  const std::string gate = activated(writer, parts[0], op.as<ActivationAttributes>().activation);
  writer.set(op.outputs[GatedActivationOut::kY], writer.node("Mul", {gate, parts[1]}));
}

// The input of a norm, x + delta.
std::string sum_of(GraphWriter& writer, const Op& op) {
  const std::string x = writer.plain(op.inputs[RowNormIn::kX]);
  const TensorId delta = op.inputs[RowNormIn::kDelta];
  if (delta == kNoTensor) return x;
  const std::string sum = writer.node("Add", {x, writer.plain(delta)});
  writer.set(op.outputs[RowNormOut::kSum], sum);
  return sum;
}

void write_layer_norm(GraphWriter& writer, const Op& op) {
  Names inputs = {sum_of(writer, op), writer.plain(op.inputs[RowNormIn::kGamma])};
  if (const TensorId beta = op.inputs[RowNormIn::kBeta]; beta != kNoTensor)
    inputs.push_back(writer.plain(beta));
  writer.set(op.outputs[RowNormOut::kY],
             writer.node("LayerNormalization",
                         inputs,
                         {{"axis", int64_t{-1}}, {"epsilon", op.as<RowNormAttributes>().epsilon}}));
}

void write_rms_norm(GraphWriter& writer, const Op& op) {
  writer.set(op.outputs[RowNormOut::kY],
             rms_normed(writer,
                        sum_of(writer, op),
                        writer.plain(op.inputs[RowNormIn::kGamma]),
                        op.as<RowNormAttributes>().epsilon));
}

constexpr OpRow kRows[] = {
    {OpKind::kLinear, write_linear},
    {OpKind::kActivation, write_activation},
    {OpKind::kAdd, write_add},
    {OpKind::kGatedActivation, write_gated_activation},
    {OpKind::kLayerNorm, write_layer_norm},
    {OpKind::kRmsNorm, write_rms_norm},
};

}  // namespace

std::span<const OpRow> layer_rows() { return kRows; }

// GELUs are the nodes of PyTorch's exporter, which ONNX Runtime fuses.
std::string activated(GraphWriter& writer, const std::string& x, Activation activation) {
  const auto times = [&](const std::string& a, const std::string& b) {
    return writer.node("Mul", {a, b});
  };
  // x / 2 (1 + part)
  const auto half_of = [&](const std::string& part) {
    const std::string sum = writer.node("Add", {part, writer.number(1)});
    return times(times(x, sum), writer.number(0.5));
  };
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kRelu: return writer.node("Relu", {x});
    case Activation::kTanh: return writer.node("Tanh", {x});
    case Activation::kRelu6: return writer.node("Clip", {x, writer.number(0), writer.number(6)});
    case Activation::kSilu: return times(x, writer.node("Sigmoid", {x}));
    case Activation::kGeluErf: {
      const std::string scaled = writer.node("Div", {x, writer.number(std::sqrt(2.0))});
      return half_of(writer.node("Erf", {scaled}));
    }
    case Activation::kGeluTanh: {
      const std::string cube = times(times(x, x), x);
      const std::string sum = writer.node("Add", {x, times(cube, writer.number(0.044715))});
      const std::string scaled = times(sum, writer.number(std::sqrt(2 / 3.14159265358979323846)));
      return half_of(writer.node("Tanh", {scaled}));
    }
  }
  writer.refuse("its activation");
}

std::string rms_normed(GraphWriter& writer,
                       const std::string& x,
                       const std::string& gamma,
                       float epsilon) {
  const std::string square = writer.node("Pow", {x, writer.number(2)});
  const std::string mean =
      writer.node("ReduceMean", {square}, {{"axes", std::vector<int64_t>{-1}}});
  const std::string sum = writer.node("Add", {mean, writer.number(static_cast<double>(epsilon))});
  const std::string normed = writer.node("Div", {x, writer.node("Sqrt", {sum})});
  return writer.node("Mul", {normed, gamma});
}

}  // namespace lockstep::onnx
