#include "models/onnx/nodes/lowering/output_layer.h"

#include <utility>

#include "models/onnx/read/constants.h"
namespace lockstep::onnx {

std::optional<OutputLayer> take_output_layer(const Readers& readers, FusionPlan& plan, int output) {
  output = readers.origin_of(output);
  const Extents extents = readers.value(output).extents;
  if (!readers.readers_of(output).empty() || extents.size() != 3) return std::nullopt;
  const Node* product = readers.producer(output);
  const Node* sum = nullptr;
  OutputLayer layer;
  if (is_op(product, "Add")) {
    sum = product;
    for (const auto& [a, b] :
         {std::pair(sum->input(0), sum->input(1)), std::pair(sum->input(1), sum->input(0))}) {
      const int bias = readers.source_of(b).value;
      if (bias < 0 || readers.value(bias).extents != Extents{extents[2]} ||
          readers.only_reader(a) != sum)
        continue;
      layer.bias = bias;
      product = readers.producer(a);
    }
  }
  if (!is_op(product, "MatMul")) return std::nullopt;
  const ParameterSource weight = readers.source_of(product->input(1));
  layer.x = product->input(0);
  if (weight.value < 0 || readers.value(weight.value).extents.size() != 2 ||
      readers.value(layer.x).extents.size() != 3)
    return std::nullopt;
  layer.weight = weight.value;
  layer.storage = weight.transposed ? Storage::kAsInFile : Storage::kTransposed;
  layer.nodes.push_back(product);
  if (sum != nullptr) layer.nodes.push_back(sum);
  for (const Node* node : layer.nodes) plan.mark_fused(*node);
  return layer;
}

int take_logits(const Readers& readers, FusionPlan& plan, int output, Loss loss) {
  const int number = readers.origin_of(output);
  const Node* last = readers.producer(number);
  const auto rank = static_cast<int64_t>(readers.value(number).extents.size());
  if (loss == Loss::kBinaryCrossEntropy) {
    if (!is_op(last, "Sigmoid")) return output;
  } else {
    if (loss != Loss::kSoftmaxCrossEntropy ||
        (!is_op(last, "Softmax") && !is_op(last, "LogSoftmax")))
      return output;
    const int64_t axis = last->integer("axis", last->opset < 13 ? 1 : -1);
    if (axis != -1 && axis != rank - 1) return output;
  }
  const int logits = last->input(0);
  if (readers.readers_of(number).empty()) plan.mark_fused(*last);
  return logits;
}

}  // namespace lockstep::onnx
