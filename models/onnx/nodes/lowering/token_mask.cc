#include "models/onnx/nodes/lowering/token_mask.h"

#include <algorithm>
#include <optional>

#include "models/onnx/nodes/ids.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/strided.h"
#include "models/onnx/read/constants.h"

namespace lockstep::onnx {
namespace {

constexpr int64_t kMaxMaskElements = int64_t{1} << 24;  // larger values are not analysed
constexpr int kMaxDepth = 200;  // nodes between the network's mask and the attention's

Array filled(const Extents& extents, ElementType type, double with) {
  return array_of(type, extents, std::vector<double>(static_cast<size_t>(elements(extents)), with));
}

// Evaluates the node, which has one output, for these inputs. An input without an array keeps its
// value of the network.
Array evaluate(const Network& network, const Node& node, const std::vector<const Array*>& inputs) {
  Node renumbered = node;
  std::vector<Value> values;
  for (size_t index = 0; index < node.inputs.size(); ++index) {
    if (node.inputs[index] < 0) continue;
    renumbered.inputs[index] = static_cast<int>(values.size());
    values.push_back(network.values[static_cast<size_t>(node.inputs[index])]);
    if (index >= inputs.size() || inputs[index] == nullptr) continue;
    Value& value = values.back();
    value.kind = ValueKind::kConstant;
    value.array = *inputs[index];
    value.type = value.array.type;
    value.extents = value.array.extents;
  }
  const NodeView view(renumbered, values);
  const NodeType& type = *type_of(node);
  return type.evaluator(view, type.rule(view))[0];
}

}  // namespace

TokenMasks::TokenMasks(const Network& network, std::vector<int> masks)
    : network_(network), masks_(std::move(masks)), producers_(producers_of(network)) {}

TokenMasks::Known TokenMasks::elements_of(int value, int depth) {
  if (const auto found = known_.find(value); found != known_.end()) return found->second;
  const Value& of = network_.values[static_cast<size_t>(value)];
  Known known;
  if (elements(of.extents) > kMaxMaskElements || elements(of.extents) == 0 || depth > kMaxDepth) {
    known = nullptr;
  } else if (of.kind == ValueKind::kConstant) {
    known = std::make_shared<Elements>(
        Elements{filled(of.extents, ElementType::kInt64, -1), of.array, of.array});
  } else if (std::ranges::count(masks_, value) > 0) {
    const auto tokens = numbers_from<int64_t>(static_cast<size_t>(elements(of.extents)));
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
  const NodeType* const type = type_of(node);
  if (type == nullptr || type->evaluator == nullptr || node.outputs.size() != 1) return nullptr;
  if (is_op(&node, "Concat") || moves_elements(node)) return moved(node, depth + 1);
  return type->lowered.formula != nullptr ? by_element(node, depth + 1) : nullptr;
}

// Analyses an op that moves the elements of its first input, or of all inputs (Concat).
TokenMasks::Known TokenMasks::moved(const Node& node, int depth) {
  const size_t count = is_op(&node, "Concat") ? node.inputs.size() : 1;
  std::vector<Known> inputs;
  for (size_t index = 0; index < node.inputs.size(); ++index) {
    const int input = node.inputs[index];
    if (index < count) {
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

// Analyses an elementwise op. All operands of an element must depend on the same token or on none.
TokenMasks::Known TokenMasks::by_element(const Node& node, int depth) {
  const size_t count = std::min(node.inputs.size(), type_of(node)->read_inputs);
  const Extents& extents = network_.values[static_cast<size_t>(node.outputs[0])].extents;
  std::vector<Known> inputs;
  std::vector<int64_t> tokens(static_cast<size_t>(elements(extents)), -1);
  for (size_t index = 0; index < count; ++index) {
    if (node.inputs[index] < 0) {
      inputs.push_back(nullptr);
      continue;
    }
    const Known input = elements_of(node.inputs[index], depth);
    if (input == nullptr) return nullptr;
    const std::vector<int64_t> operand = broadcast_to(input->token, extents).as_int64();
    for (size_t i = 0; i < operand.size(); ++i) {
      if (operand[i] >= 0 && tokens[i] >= 0 && operand[i] != tokens[i]) return nullptr;
      tokens[i] = std::max(tokens[i], operand[i]);
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
  std::optional<Kind> reached, later;  // of keys up to the query, and of later keys
  for (int64_t i = 0; i < elements(extents); ++i) {
    const auto index = static_cast<size_t>(i);
    const int64_t key = i % columns, query = i / columns % rows;
    const int64_t sample = i / (columns * rows * extents[1]);
    const auto is_seen = [&](float x) {
      return mask.type == ElementType::kBool ? (x != 0) != true_hides : x == 0;
    };
    const auto is_hidden = [&](float x) {
      return mask.type == ElementType::kBool ? !is_seen(x) : x <= kForgotten;
    };
    Kind kind;
    if (is_seen(absent[index]) && is_seen(present[index]))
      kind = Kind::kSeen;
    else if (is_hidden(absent[index]) && is_hidden(present[index]))
      kind = Kind::kHidden;
    else if (is_hidden(absent[index]) && is_seen(present[index]) && by_sample &&
             token[index] == sample * columns + key)
      kind = Kind::kPadding;
    else
      return {};
    std::optional<Kind>& common = key > query && rows > 1 ? later : reached;
    if (common.value_or(kind) != kind) return {};
    common = kind;
  }
  const bool causal = later == Kind::kHidden;
  if (reached == Kind::kHidden || (causal && rows != columns) ||
      (later && !causal && later != reached))
    return {};
  return {.known = true, .causal = causal, .padding = reached == Kind::kPadding};
}

}  // namespace lockstep::onnx
