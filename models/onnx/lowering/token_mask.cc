#include "models/onnx/lowering/token_mask.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "models/onnx/constants.h"
#include "models/onnx/ids.h"
#include "models/onnx/lowering/pointwise_functions.h"
#include "models/onnx/rules/strided.h"
#include "models/onnx/rules/table.h"

namespace lockstep::onnx {
namespace {

constexpr int64_t kLargestMask = int64_t{1} << 24;  // of a mask: what is larger is not looked at
constexpr int kDeepest = 200;  // nodes from the network's mask to the attention's

Array filled(const Extents& extents, ElementType type, double with) {
  return array_of(type, extents, std::vector<double>(static_cast<size_t>(elements(extents)), with));
}

// The node's only output, of these inputs; those that are no arrays are of the network.
Array evaluate(const Network& network, const Node& node, const std::vector<const Array*>& inputs) {
  Node own = node;
  std::vector<Value> values;
  for (size_t place = 0; place < node.inputs.size(); ++place) {
    if (node.inputs[place] < 0) continue;
    own.inputs[place] = static_cast<int>(values.size());
    values.push_back(network.values[static_cast<size_t>(node.inputs[place])]);
    if (place >= inputs.size() || inputs[place] == nullptr) continue;
    Value& value = values.back();
    value.kind = ValueKind::kConstant;
    value.array = *inputs[place];
    value.type = value.array.type;
    value.extents = value.array.extents;
  }
  const NodeView view(own, values);
  const Op& op = *find_op(node);
  return op.evaluator(view, op.rule(view))[0];
}

}  // namespace

TokenMasks::TokenMasks(const Network& network)
    : network_(network), producers_(network.values.size(), nullptr) {
  for (const Node& node : network.nodes)
    for (const int output : node.outputs)
      if (output >= 0) producers_[static_cast<size_t>(output)] = &node;
}

TokenMasks::Known TokenMasks::elements_of(int value, int depth) {
  if (const auto found = known_.find(value); found != known_.end()) return found->second;
  const Value& of = network_.values[static_cast<size_t>(value)];
  Known known;
  if (elements(of.extents) > kLargestMask || elements(of.extents) == 0 || depth > kDeepest) {
    known = nullptr;
  } else if (of.kind == ValueKind::kConstant) {
    known = std::make_shared<Elements>(
        Elements{filled(of.extents, ElementType::kInt64, -1), of.array, of.array});
  } else if (std::ranges::count(masks_, value) > 0) {
    std::vector<int64_t> tokens(static_cast<size_t>(elements(of.extents)));
    std::iota(tokens.begin(), tokens.end(), 0);
    known = std::make_shared<Elements>(Elements{array_of_int64(of.extents, tokens),
                                                filled(of.extents, of.type, 0),
                                                filled(of.extents, of.type, 1)});
  } else if (const Node* const node = producers_[static_cast<size_t>(value)];
             node != nullptr && of.kind == ValueKind::kComputed) {
    known = computed(*node, depth);
  }
  return known_[value] = known;
}

TokenMasks::Known TokenMasks::computed(const Node& node, int depth) {
  const Op* const op = find_op(node);
  if (op == nullptr || op->evaluator == nullptr || node.outputs.size() != 1) return nullptr;
  if (is_op(&node, "Concat") || moves_elements(node)) return moved(node, depth + 1);
  return pointwise_of(node.op) != nullptr ? by_element(node, depth + 1) : nullptr;
}

// The same elements in another place: of the first input, or of all that are put together.
TokenMasks::Known TokenMasks::moved(const Node& node, int depth) {
  const size_t count = is_op(&node, "Concat") ? node.inputs.size() : 1;
  std::vector<Known> inputs;
  for (size_t place = 0; place < node.inputs.size(); ++place) {
    const int input = node.inputs[place];
    if (place < count) {
      inputs.push_back(elements_of(input, depth));
      if (inputs.back() == nullptr) return nullptr;
    } else if (input >= 0 &&
               network_.values[static_cast<size_t>(input)].kind != ValueKind::kConstant) {
      return nullptr;
    }
  }
  const auto of = [&](const Array Elements::*part) {
    std::vector<const Array*> arrays;
    for (const Known& input : inputs) arrays.push_back(&(*input.*part));
    return evaluate(network_, node, arrays);
  };
  return std::make_shared<Elements>(
      Elements{of(&Elements::token), of(&Elements::absent), of(&Elements::present)});
}

// Each of elements that depend on one token at most.
TokenMasks::Known TokenMasks::by_element(const Node& node, int depth) {
  const size_t count = std::min(node.inputs.size(), find_op(node)->read_inputs);
  const Extents& extents = network_.values[static_cast<size_t>(node.outputs[0])].extents;
  std::vector<Known> inputs;
  std::vector<int64_t> tokens(static_cast<size_t>(elements(extents)), -1);
  for (size_t place = 0; place < count; ++place) {
    if (node.inputs[place] < 0) {
      inputs.push_back(nullptr);
      continue;
    }
    const Known input = elements_of(node.inputs[place], depth);
    if (input == nullptr) return nullptr;
    const std::vector<int64_t> own = broadcast_to(input->token, extents).as_int64();
    for (size_t i = 0; i < own.size(); ++i) {
      if (own[i] >= 0 && tokens[i] >= 0 && own[i] != tokens[i]) return nullptr;
      tokens[i] = std::max(tokens[i], own[i]);
    }
    inputs.push_back(input);
  }
  const auto of = [&](const Array Elements::*part) {
    std::vector<const Array*> arrays;
    for (const Known& input : inputs)
      arrays.push_back(input == nullptr ? nullptr : &(*input.*part));
    return evaluate(network_, node, arrays);
  };
  return std::make_shared<Elements>(
      Elements{array_of_int64(extents, tokens), of(&Elements::absent), of(&Elements::present)});
}

MaskForm TokenMasks::form_of(int value, bool true_hides) {
  const Known known = elements_of(value, 0);
  const Value& mask = network_.values[static_cast<size_t>(value)];
  if (known == nullptr || mask.extents.size() < 2 || mask.extents.size() > 4) return {};
  if (true_hides && mask.type != ElementType::kBool) return {};
  Extents extents(4 - mask.extents.size(), 1);
  extents.insert(extents.end(), mask.extents.begin(), mask.extents.end());
  const int64_t rows = extents[2], columns = extents[3];
  // (N, T) of the network's mask, if there is one.
  const Extents tokens =
      masks_.empty() ? Extents{0, 0} : network_.values[static_cast<size_t>(masks_[0])].extents;
  const bool by_sample = extents[0] == tokens[0] && columns == tokens[1];
  const std::vector<int64_t> token = known->token.as_int64();
  const std::vector<float> absent = known->absent.as_float(), present = known->present.as_float();
  enum class Kind { kSeen, kHidden, kPadding };
  std::optional<Kind> reached, behind;  // a query's own token and those before it; those behind
  for (int64_t i = 0; i < elements(extents); ++i) {
    const auto place = static_cast<size_t>(i);
    const int64_t key = i % columns, query = i / columns % rows;
    const int64_t sample = i / (columns * rows * extents[1]);
    const auto is_seen = [&](float x) {
      return mask.type == ElementType::kBool ? (x != 0) != true_hides : x == 0;
    };
    const auto is_hidden = [&](float x) {
      return mask.type == ElementType::kBool ? !is_seen(x) : x <= kForgotten;
    };
    Kind kind;
    if (is_seen(absent[place]) && is_seen(present[place]))
      kind = Kind::kSeen;
    else if (is_hidden(absent[place]) && is_hidden(present[place]))
      kind = Kind::kHidden;
    else if (is_hidden(absent[place]) && is_seen(present[place]) && by_sample &&
             token[place] == sample * columns + key)
      kind = Kind::kPadding;
    else
      return {};
    std::optional<Kind>& others = key > query && rows > 1 ? behind : reached;
    if (others.value_or(kind) != kind) return {};
    others = kind;
  }
  const bool causal = behind == Kind::kHidden;
  if (reached == Kind::kHidden || (causal && rows != columns) ||
      (behind && !causal && behind != reached))
    return {};
  return {.known = true, .causal = causal, .padding = reached == Kind::kPadding};
}

}  // namespace lockstep::onnx
