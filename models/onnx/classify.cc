// Which initializers may learn: those that the config names, those that the file declares and, where neither
// says anything, those that stand in the place of a parameter of a node whose other inputs depend on the
// network's.

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "models/onnx/constants.h"
#include "models/onnx/network.h"
#include "runtime/base/check.h"

namespace lockstep::onnx {
namespace {

enum class Slot : uint8_t {
  kWeight,
  kVector,   // bias, gain, scale or bias of a normalization
  kTable,    // rows are gathered from it
  kOperand,  // of an op that adds, multiplies, puts together
};

// Ops that only move or copy the elements of their input 0 (Concat: of all inputs).
const std::set<std::string_view> kMoving = {"Transpose",
                                            "Reshape",
                                            "Flatten",
                                            "Squeeze",
                                            "Unsqueeze",
                                            "Identity",
                                            "Cast",
                                            "CastLike",
                                            "Expand",
                                            "Slice",
                                            "Split",
                                            "Concat",
                                            "Tile",
                                            "Gather"};

// Functions of a parameter that stand for it, as of a temperature that is learned as its logarithm.
const std::set<std::string_view> kOfParameters = {"Exp", "Neg", "Sigmoid", "Softplus", "Tanh"};

const std::set<std::string_view> kOfExtents = {"Shape", "Size", "EyeLike"};

// Through which no gradient comes: what they make only jumps.
bool is_step(const Node& node) {
  static const std::set<std::string_view> kSteps = {"ArgMax",
                                                    "ArgMin",
                                                    "Ceil",
                                                    "Equal",
                                                    "Floor",
                                                    "Greater",
                                                    "GreaterOrEqual",
                                                    "IsInf",
                                                    "IsNaN",
                                                    "Less",
                                                    "LessOrEqual",
                                                    "Round",
                                                    "Shape",
                                                    "Sign",
                                                    "Size"};
  if (kSteps.count(node.op) > 0) return true;
  static const std::set<int64_t> kFloatingTypes = {1, 10, 11, 16};  // numbers in ONNX
  return node.op == "Cast" && node.has("to") && kFloatingTypes.count(node.integer("to", 1)) == 0;
}

// Names that PyTorch's exporters give what they computed themselves: "val_12", "/layer/Constant_output_0", and an
// operation with a number, "unsqueeze_14". Not "embedding_2": the rows of a table of positions, which learn.
bool is_invented(const std::string& name, bool one_element) {
  static const std::set<std::string_view> kOperations = {
      "_to_copy", "add",    "alias",    "arange", "cat",       "clone",     "convert_element_type",
      "cos",      "div",    "exp",      "expand", "full",      "getitem",   "index",
      "lift",     "log",    "mul",      "neg",    "new_zeros", "ones",      "permute",
      "pow",      "repeat", "rsqrt",    "scalar", "select",    "sin",       "slice",
      "sqrt",     "stack",  "sub",      "t",      "to",        "transpose", "unsqueeze",
      "val",      "_val",   "view",     "where",  "zeros",     "reshape",   "scalar_tensor_default",
      "squeeze",  "tril",   "linspace", "triu"};
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  std::string_view stem = std::string_view(name).substr(0, digits);
  if (stem.ends_with('_')) stem.remove_suffix(1);
  return name.empty() || name[0] == '/' || kOperations.count(stem) > 0 || has("lifted_tensor") ||
         has("tensor_constant") || (one_element && has("onnx::"));
}

// Names that the exporters of TensorFlow, Keras, JAX and PaddlePaddle give numbers of the arithmetic:
// "gelu/mul/x:0", "jax2tf_f_/Const_2:0", "const_fold_opt__211", "Constant@3", "p2o.helper.constant.4".
bool is_number_of(const std::string& name, const Array& array) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (has("Constant@") || name.starts_with("p2o.helper.")) return true;
  if (array.size() != 1) return false;
  const bool scalar = array.extents.empty();
  return name.starts_with("const_fold_opt__") || (scalar && has("/") && !has("ReadVariableOp"));
}

// Only 0 and what makes a softmax forget.
bool is_mask(const Array& array) {
  bool forgets = false;
  for (const float x : array.as_float()) {
    if (x != 0 && !(x <= kForgotten)) return false;
    forgets |= x != 0;
  }
  return forgets;
}

// At most one axis is longer than 1.
bool is_vector(const Array& array) {
  return std::count_if(array.extents.begin(), array.extents.end(), [](int64_t extent) {
           return extent > 1;
         }) <= 1;
}

class Classifier {
 public:
  Classifier(const File& file, bool declared)
      : file_(file),
        declares_(declared && file.declares),
        source_(file.values.size(), -1),
        varies_(file.values.size(), false),
        flows_(file.values.size(), true),
        by_pytorch_(file.producer.starts_with("pytorch")) {
    classes_.parameter.resize(file.values.size(), false);
    classes_.source.resize(file.values.size(), Source::kRule);
    for (size_t i = 0; i < file.nodes.size(); ++i)
      for (const int output : file.nodes[i].outputs)
        if (output >= 0) source_[static_cast<size_t>(output)] = static_cast<int>(i);
    for (const int input : file.inputs) varies_[static_cast<size_t>(input)] = true;
    spread();
    spread_back();
  }

  Classes run() {
    for (size_t i = 0; i < file_.nodes.size(); ++i) visit(static_cast<int>(i));
    return std::move(classes_);
  }

 private:
  // From inputs to outputs of nodes.
  void spread() {
    for (const Node& node : file_.nodes) {
      if (kOfExtents.count(node.op) > 0) continue;
      const bool any = node.op.starts_with("Random") || node.op == "Bernoulli" ||
                       std::any_of(node.inputs.begin(), node.inputs.end(), [&](int input) {
                         return input >= 0 && varies_[static_cast<size_t>(input)];
                       });
      for (const int output : node.outputs)
        if (any && output >= 0) varies_[static_cast<size_t>(output)] = true;
    }
  }

  // From outputs to inputs of nodes. What nothing reads counts as an output.
  void spread_back() {
    std::vector<bool> read(file_.values.size(), false);
    const auto for_inputs = [&](const Node& node, const auto& visit) {
      for (const int input : node.inputs)
        if (input >= 0) visit(static_cast<size_t>(input));
    };
    for (const Node& node : file_.nodes)
      for_inputs(node, [&](size_t input) { read[input] = true; });
    for (const int output : file_.outputs) read[static_cast<size_t>(output)] = false;
    for (size_t value = 0; value < read.size(); ++value) flows_[value] = !read[value];
    for (auto node = file_.nodes.rbegin(); node != file_.nodes.rend(); ++node)
      if (comes_back(*node) && !is_step(*node))
        for_inputs(*node, [&](size_t input) { flows_[input] = true; });
  }

  bool comes_back(const Node& node) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(), [&](int output) {
      return output >= 0 && flows_[static_cast<size_t>(output)];
    });
  }

  // Whether an input other than that at `place` depends on the network's inputs.
  bool others_vary(const Node& node, size_t place) const {
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (i != place && node.inputs[i] >= 0 && varies_[static_cast<size_t>(node.inputs[i])])
        return true;
    return false;
  }

  void slots(int number, std::initializer_list<size_t> places, Slot slot) {
    const Node& node = file_.nodes[static_cast<size_t>(number)];
    for (const size_t place : places)
      if (node.input(place) >= 0 && others_vary(node, place)) mark(node.input(place), number, slot);
  }

  void visit(int number) {
    const Node& node = file_.nodes[static_cast<size_t>(number)];
    if (!node.domain.empty() || !comes_back(node)) return;
    const std::string& op = node.op;
    const auto is = [&](std::initializer_list<std::string_view> ops) {
      return std::find(ops.begin(), ops.end(), op) != ops.end();
    };
    if (is({"Conv", "ConvTranspose"})) {
      slots(number, {1}, Slot::kWeight);
      slots(number, {2}, Slot::kVector);
    } else if (op == "Gemm") {
      slots(number, {0, 1}, Slot::kWeight);
      slots(number, {2}, Slot::kVector);
    } else if (op == "MatMul") {
      slots(number, {0, 1}, Slot::kWeight);
    } else if (is({"BatchNormalization",
                   "LayerNormalization",
                   "GroupNormalization",
                   "InstanceNormalization",
                   "RMSNormalization"})) {
      slots(number, {1, 2}, Slot::kVector);
    } else if (op == "PRelu") {
      slots(number, {1}, Slot::kVector);
    } else if (is({"LSTM", "GRU", "RNN"})) {
      slots(number, {1, 2}, Slot::kWeight);
      slots(number, {3, 7}, Slot::kVector);
    } else if (op == "Gather") {
      slots(number, {0}, Slot::kTable);
    } else if (op == "Einsum") {
      for (size_t place = 0; place < node.inputs.size(); ++place)
        slots(number, {place}, Slot::kWeight);
    } else if (is({"Add", "Sub", "Mul", "Div", "Sum", "Concat"})) {
      for (size_t place = 0; place < node.inputs.size(); ++place)
        slots(number, {place}, Slot::kOperand);
    } else if (op == "Where") {
      slots(number, {1, 2}, Slot::kOperand);
    }
  }

  // A value in a slot of a node: initializers that it is made of may learn, and so may Constant nodes, which
  // hold weights in files of other exporters, and by their names in PaddlePaddle's all that learns, which is no scalar;
  // PyTorch's has them for gains of 1 that no module has.
  // Each value is looked at once for each slot, however many ways lead to it.
  void mark(int value, int node, Slot slot) {
    std::set<std::pair<int, Slot>> seen;
    std::vector<std::pair<int, Slot>> waiting;
    const auto meet = [&](int next, Slot as) {
      if (next >= 0 && !varies_[static_cast<size_t>(next)] && seen.emplace(next, as).second)
        waiting.emplace_back(next, as);
    };
    meet(value, slot);
    while (!waiting.empty()) {
      const auto [next, as] = waiting.back();
      waiting.pop_back();
      const int source = source_[static_cast<size_t>(next)];
      if (const Array* const array = learning_array(next, as))
        add(next, node, as, *array);
      else if (source >= 0)
        meet_inputs(file_.nodes[static_cast<size_t>(source)], as, meet);
    }
  }

  // The elements of an initializer or Constant node that learns in such a slot.
  const Array* learning_array(int value, Slot slot) const {
    const FileValue& known = file_.values[static_cast<size_t>(value)];
    if (known.initializer >= 0) {
      const Initializer& stored = file_.initializers[static_cast<size_t>(known.initializer)];
      return may_learn(stored.array, stored.name, slot) ? &stored.array : nullptr;
    }
    // A file that declares its parameters has none in Constant nodes.
    if (!known.constant || declares_) return nullptr;
    const bool weight = slot == Slot::kWeight || slot == Slot::kTable;
    const bool named = !by_pytorch_ && !known.of_function && !known.constant->extents.empty() &&
                       !is_invented(known.name, false);
    const bool learns = (weight || named) && may_learn(*known.constant, known.name, slot);
    return learns ? &*known.constant : nullptr;
  }

  // The inputs of which the node's outputs are made.
  template <typename Meet>
  static void meet_inputs(const Node& source, Slot slot, const Meet& meet) {
    if (!source.domain.empty()) return;
    if (kMoving.count(source.op) > 0) {
      const size_t count = source.op == "Concat" ? source.inputs.size() : 1;
      for (size_t i = 0; i < count && i < source.inputs.size(); ++i) meet(source.inputs[i], slot);
    } else if (kOfParameters.count(source.op) > 0) {
      meet(source.input(0), Slot::kOperand);
    }
  }

  bool may_learn(const Array& array, const std::string& name, Slot slot) const {
    if (!is_floating(array.type) || array.size() == 0) return false;
    if (slot == Slot::kTable) return array.extents.size() >= 2;
    if (slot == Slot::kVector && declares_) return !is_invented(name, array.size() == 1);
    if (slot != Slot::kOperand) return true;
    return !is_invented(name, array.size() == 1) && !is_number_of(name, array) && !is_mask(array);
  }

  void add(int value, int node, Slot slot, const Array& array) {
    classes_.parameter[static_cast<size_t>(value)] = true;
    const std::string& op = file_.nodes[static_cast<size_t>(node)].op;
    const bool together = op == "Concat" || op == "Where";
    const bool vector =
        slot == Slot::kVector || (slot == Slot::kOperand && !together && is_vector(array));
    if (!vector) return;
    std::vector<int>& nodes = classes_.vector_nodes[value];
    const auto at = std::lower_bound(nodes.begin(), nodes.end(), node);
    if (at == nodes.end() || *at != node) nodes.insert(at, node);
  }

  const File& file_;
  bool declares_;             // and its word counts
  std::vector<int> source_;   // by value: the node that computes it, or -1
  std::vector<bool> varies_;  // by value: whether it depends on an input of the network
  std::vector<bool> flows_;   // by value: whether a gradient comes back to it
  bool by_pytorch_;           // whether its exporter has written the file
  Classes classes_;
};

// Null of what is computed.
const Array* elements_of(const File& file, size_t number) {
  const FileValue& value = file.values[number];
  if (value.initializer >= 0)
    return &file.initializers[static_cast<size_t>(value.initializer)].array;
  return value.constant ? &*value.constant : nullptr;
}

// Whether a pattern may make the value learn: an initializer, or a Constant node that is no number of the
// arithmetic.
bool may_be_chosen(const File& file, size_t number) {
  const FileValue& value = file.values[number];
  return value.initializer >= 0 ||
         (value.constant && !is_invented(value.name, value.constant->size() == 1) &&
          !is_number_of(value.name, *value.constant));
}

// What the file and the config say, in the place of what the rule has found.
class Overrides {
 public:
  Overrides(const File& file, const Selection& selection)
      : file_(file), selection_(selection), statistic_(file.values.size(), false) {
    for (const Node& node : file.nodes) {
      if (node.op != "BatchNormalization" || !node.domain.empty()) continue;
      for (const size_t place : {size_t{3}, size_t{4}})
        if (node.input(place) >= 0) statistic_[static_cast<size_t>(node.input(place))] = true;
    }
  }

  void apply(Classes& classes) const {
    for (size_t i = 0; i < file_.values.size(); ++i) {
      const Array* const array = elements_of(file_, i);
      if (array == nullptr || !is_floating(array->type) || array->size() == 0) continue;
      const FileValue& value = file_.values[i];
      if (selection_.declared && value.declared != Declared::kNothing)
        set(classes, i, value.declared == Declared::kParameter, Source::kFile);
      if (value.of_function) continue;
      if (selection_.trainable && may_be_chosen(file_, i) && selection_.trainable(value.name))
        set(classes, i, true, Source::kConfig);
      if (selection_.constant && selection_.constant(value.name))
        set(classes, i, false, Source::kConfig);
    }
    if (selection_.declared && file_.optimized && !file_.lost_parameters.empty())
      add_readers(classes);
  }

 private:
  // The exporter may have merged declared parameters wherever they stand.
  void add_readers(Classes& classes) const {
    for (size_t i = 0; i < file_.nodes.size(); ++i) {
      for (const int input : file_.nodes[i].inputs) {
        if (input < 0) continue;
        const auto number = static_cast<size_t>(input);
        if (!classes.parameter[number] || classes.source[number] != Source::kFile ||
            !is_vector(*elements_of(file_, number)))
          continue;
        std::vector<int>& nodes = classes.vector_nodes[input];
        const auto node = static_cast<int>(i);
        const auto at = std::lower_bound(nodes.begin(), nodes.end(), node);
        if (at == nodes.end() || *at != node) nodes.insert(at, node);
      }
    }
  }

  void set(Classes& classes, size_t number, bool learns, Source source) const {
    classes.source[number] = source;
    classes.parameter[number] = learns && !statistic_[number];
    if (!classes.parameter[number]) classes.vector_nodes.erase(static_cast<int>(number));
  }

  const File& file_;
  const Selection& selection_;
  std::vector<bool> statistic_;  // by value: a running mean or variance
};

}  // namespace

Classes classify(const File& file, const Selection& selection) {
  Classes classes = Classifier(file, selection.declared).run();
  Overrides(file, selection).apply(classes);
  return classes;
}

std::vector<std::string> names_of_numbers(const File& file, bool trainable) {
  std::vector<std::string> names;
  for (size_t i = 0; i < file.values.size(); ++i) {
    const Array* const array = elements_of(file, i);
    if (array == nullptr || file.values[i].of_function || !is_floating(array->type) ||
        array->size() == 0 || (trainable && !may_be_chosen(file, i)))
      continue;
    names.push_back(file.values[i].name);
  }
  return names;
}

std::vector<MergedInitializer> merged_initializers(const File& file, const Classes& classes) {
  std::vector<MergedInitializer> merged;
  for (const auto& [value, nodes] : classes.vector_nodes) {
    if (nodes.size() < 2) continue;
    merged.push_back({file.values[static_cast<size_t>(value)].name, {}});
    for (const int node : nodes)
      merged.back().nodes.push_back(file.nodes[static_cast<size_t>(node)].description());
  }
  return merged;
}

}  // namespace lockstep::onnx
