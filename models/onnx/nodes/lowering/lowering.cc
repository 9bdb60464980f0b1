#include "models/onnx/nodes/lowering/lowering.h"

#include <utility>

#include "models/onnx/nodes/lowering/fusion_plan.h"
#include "models/onnx/nodes/node_type.h"
#include "runtime/graph/ops/pointwise.h"

namespace lockstep::onnx {

Lowering::Lowering(const Network& network, graph::GraphBuilder& builder, LoweringOptions options)
    : builder_(builder),
      options_(std::move(options)),
      readers_(network),
      parameters_(network, builder),
      layouts_(readers_, parameters_, builder),
      fusion_(readers_),
      token_masks_(options_.probe != nullptr ? *options_.probe : network, options_.token_masks) {
  fuse_nodes(readers_, fusion_);
}

void Lowering::run() {
  for (const Node& node : readers_.network().nodes) lower(node);
}

void Lowering::lower(const Node& node) {
  if (is_done(node) || !lowered_.insert(&node).second) return;
  if (const Replacement* replacement = fusion_.replacement_of(node))
    return (*replacement)(*this, node);
  if (node.output(0) >= 0 && stops_gradient(node, value(node.output(0)))) return detach(node);
  const LowerNode function = lower_of(node);
  if (function == nullptr) refuse_op(node);
  function(*this, node);
  require_outputs(node);
}

void Lowering::detach(const Node& node) {
  graph::PointwiseProgram same;
  same.input(0);
  const TensorId y = ops::pointwise(builder_, name_of(node), {layouts_.plain(node.input(0))}, same);
  builder_[y].detached = true;
  layouts_.set(node.output(0), y);
}

// Reports a node whose op cannot be trained, and the later nodes for which this is true as well.
void Lowering::refuse_op(const Node& node) const {
  std::map<std::string, int> others;
  const std::vector<Node>& nodes = readers_.network().nodes;
  for (const Node* other = &node + 1; other != nodes.data() + nodes.size(); ++other)
    if (!is_done(*other) && lower_of(*other) == nullptr)
      ++others[other->domain.empty() ? other->op : other->domain + "." + other->op];
  std::string text;
  for (const auto& [op, count] : others)
    text += fmt::format("{}{} {}", text.empty() ? "; nor can " : ", ", count, op);
  refuse(node, "the op cannot be trained{}", text);
}

void Lowering::require_outputs(const Node& node) const {
  for (const int output : node.outputs)
    if (output >= 0 && !layouts_.is_set(output) && fusion_.is_read(output))
      refuse(node, "its output \"{}\" is not supported", value(output).name);
}

bool Lowering::lower_early(int number, const Node& node) {
  std::set<const Node*> needed;  // in the order of the network: nodes are in one array
  std::vector<int> values = {number};
  while (!values.empty()) {
    const Node* const found = readers_.producer(values.back());
    values.pop_back();
    if (found == nullptr) continue;
    if (found == &node) return false;
    if (lowered_.contains(found) || !needed.insert(found).second) continue;
    for (const int input : found->inputs)
      if (input >= 0) values.push_back(input);
  }
  for (const Node* each : needed) lower(*each);
  return true;
}

std::string Lowering::name_of(const Node& node) const {
  return node.name.empty() && node.output(0) >= 0 ? value(node.output(0)).name : node.name;
}

// Documents are not separated: a mask of tokens hides padding from all tokens, and nothing else.
TensorId Lowering::seen_tokens() {
  if (seen_tokens_ != kNoTensor) return seen_tokens_;
  graph::PointwiseProgram program;
  const int zero = program.constant(0);
  program.append(graph::PointwiseFunction::kMin, program.input(0), zero);
  return seen_tokens_ = ops::pointwise(
             builder_, "seen_tokens", {options_.documents}, program, /*integers=*/true);
}

void Lowering::require_fp32(const Node& node) {
  constexpr const char* kReason = "computes with integers, which only FP32 holds exactly";
  if (builder_.options().compute != DType::kF32)
    refuse(node, "{}; set execution.precision: FP32", kReason);
  if (reason_for_fp32_.empty())
    reason_for_fp32_ = fmt::format("{} {}", node.description(), kReason);
}

}  // namespace lockstep::onnx
