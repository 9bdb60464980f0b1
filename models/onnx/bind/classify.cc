// classify(): which initializers (and Constant nodes) are parameters, that is, learn.
//
// An ONNX file does not distinguish parameters from constants. PyTorch's newer exporter declares
// them in metadata, and the config may name them. Otherwise a rule guesses from the graph, in three
// passes:
//
//   1. spread() goes from inputs to outputs and marks the values that depend on the network's
//      inputs (varies_).
//   2. spread_back() goes from outputs to inputs and marks the values that receive a gradient
//      (flows_). A step such as Floor, a comparison or a cast to integers stops it.
//   3. visit() takes each op whose output receives a gradient and looks at its slots, the inputs
//      that hold parameters in usual networks, such as the weight of a Conv. If another input
//      varies, mark() searches backwards from the slot, through ops that only move elements
//      (kMoving: a weight may be transposed first) and functions of a parameter (kOfParameters),
//      over values that do not vary. The initializers that it finds are parameters if may_learn()
//      accepts them: exporters also write masks and numbers of the arithmetic as initializers,
//      which can only be recognised by their elements and names. The search remembers pairs of
//      value and slot, so that it visits each once, however many paths lead there.
//
// Overrides then replaces the rule's result by the file's declaration, and that by the config's
// patterns. Running statistics of batch norms never are parameters. Classes::vector_nodes records
// where a bias or gain is used, to find parameters that an exporter has merged.

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "models/onnx/network.h"
#include "models/onnx/read/constants.h"
#include "runtime/base/text.h"

namespace lockstep::onnx {
namespace {

enum class Slot : uint8_t {
  kWeight,
  kVector,   // bias, gain, scale or bias of a normalization
  kTable,    // of Gather
  kOperand,  // of elementwise ops, Concat and Where
};

// Ops that only move or copy the elements of their input 0 (Concat: of all inputs).
const std::vector<std::string> kMoving = words_of(
    "Transpose Reshape Flatten Squeeze Unsqueeze Identity Cast CastLike Expand Slice Split "
    "Concat Tile Gather");

// Functions that networks apply to a parameter before its use. For example, a temperature is
// learned as its logarithm.
const std::set<std::string_view> kOfParameters = {"Exp", "Neg", "Sigmoid", "Softplus", "Tanh"};

// Ops whose outputs depend only on the extents of their inputs.
const std::set<std::string_view> kOfExtents = {"Shape", "Size", "EyeLike"};

// Whether the node's output is piecewise constant, so that no gradient passes.
bool is_step(const Node& node) {
  static const std::vector<std::string> kSteps = words_of(
      "ArgMax ArgMin Ceil Equal Floor Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Round "
      "Shape Sign Size");
  if (std::ranges::count(kSteps, node.op) > 0) return true;
  static const std::set<int64_t> kFloatingTypes = {1, 10, 11, 16};  // ONNX's numbers of the types
  return node.op == "Cast" && node.has("to") && kFloatingTypes.count(node.integer("to", 1)) == 0;
}

// Whether PyTorch's exporters made up the name, for a value that they computed themselves:
// "val_12", "/layer/Constant_output_0", or an operation with a number, "unsqueeze_14".
// "embedding_2" is not among them: it may be rows of a table of positions, which learn.
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

// Whether the value is a number of the arithmetic rather than a parameter, by the names of the
// exporters of TensorFlow, Keras, JAX and PaddlePaddle: "gelu/mul/x:0", "jax2tf_f_/Const_2:0",
// "const_fold_opt__211", "Constant@3", "p2o.helper.constant.4".
bool is_number_of(const std::string& name, const Array& array) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (has("Constant@") || name.starts_with("p2o.helper.")) return true;
  if (array.size() != 1) return false;
  const bool scalar = array.extents.empty();
  return name.starts_with("const_fold_opt__") || (scalar && has("/") && !has("ReadVariableOp"));
}

// Whether the array is an attention mask: only 0 and at least one number that a softmax turns into
// 0.
bool is_mask(const Array& array) {
  bool forgets = false;
  for (const float x : array.as_float()) {
    if (x != 0 && !(x <= kForgotten)) return false;
    forgets |= x != 0;
  }
  return forgets;
}

// Whether at most one axis is longer than 1.
bool is_vector(const Array& array) {
  return std::ranges::count_if(array.extents, [](int64_t extent) { return extent > 1; }) <= 1;
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
  // Sets varies_, in the order of nodes.
  void spread() {
    for (const Node& node : file_.nodes) {
      if (kOfExtents.count(node.op) > 0) continue;
      const bool any = node.op.starts_with("Random") || node.op == "Bernoulli" ||
                       std::ranges::any_of(node.inputs, [&](int input) {
                         return input >= 0 && varies_[static_cast<size_t>(input)];
                       });
      for (const int output : node.outputs)
        if (any && output >= 0) varies_[static_cast<size_t>(output)] = true;
    }
  }

  // Sets flows_, in reverse order of nodes. A value that no node reads counts as an output.
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
    return std::ranges::any_of(node.outputs, [&](int output) {
      return output >= 0 && flows_[static_cast<size_t>(output)];
    });
  }

  // Whether another input than `index` depends on the network's inputs.
  bool others_vary(const Node& node, size_t index) const {
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (i != index && node.inputs[i] >= 0 && varies_[static_cast<size_t>(node.inputs[i])])
        return true;
    return false;
  }

  void slots(int number, std::initializer_list<size_t> indices, Slot slot) {
    const Node& node = file_.nodes[static_cast<size_t>(number)];
    for (const size_t index : indices)
      if (node.input(index) >= 0 && others_vary(node, index)) mark(node.input(index), number, slot);
  }

  void visit(int number) {
    const Node& node = file_.nodes[static_cast<size_t>(number)];
    if (!node.domain.empty() || !comes_back(node)) return;
    const std::string& op = node.op;
    const auto is = [&](std::initializer_list<std::string_view> ops) {
      return std::ranges::find(ops, op) != ops.end();
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
      for (size_t index = 0; index < node.inputs.size(); ++index)
        slots(number, {index}, Slot::kWeight);
    } else if (is({"Add", "Sub", "Mul", "Div", "Sum", "Concat"})) {
      for (size_t index = 0; index < node.inputs.size(); ++index)
        slots(number, {index}, Slot::kOperand);
    } else if (op == "Where") {
      slots(number, {1, 2}, Slot::kOperand);
    }
  }

  // Marks the parameters that `value`, which is in `slot` of `node`, is computed from.
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

  // The elements of the value if it is an initializer or Constant node that learns in such a slot;
  // otherwise null. Other exporters than PyTorch's write weights as Constant nodes, and
  // PaddlePaddle's writes all parameters so, with names and never as scalars. PyTorch's exporter
  // writes gains of 1 as Constant nodes that no module has as a parameter.
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

  // Calls meet(input, slot) for the inputs from which mark() continues its search.
  template <typename Meet>
  static void meet_inputs(const Node& source, Slot slot, const Meet& meet) {
    if (!source.domain.empty()) return;
    if (std::ranges::count(kMoving, source.op) > 0) {
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
    const bool joins = op == "Concat" || op == "Where";
    const bool vector =
        slot == Slot::kVector || (slot == Slot::kOperand && !joins && is_vector(array));
    if (!vector) return;
    std::vector<int>& nodes = classes_.vector_nodes[value];
    const auto at = std::ranges::lower_bound(nodes, node);
    if (at == nodes.end() || *at != node) nodes.insert(at, node);
  }

  const File& file_;
  bool declares_;             // whether the file declares its parameters, and this is used
  std::vector<int> source_;   // by value: the node that computes it, or -1
  std::vector<bool> varies_;  // by value: whether it depends on an input of the network
  std::vector<bool> flows_;   // by value: whether a gradient comes back to it
  bool by_pytorch_;           // whether PyTorch's exporter wrote the file
  Classes classes_;
};

// The elements of an initializer or Constant node; null for a computed value.
const Array* elements_of(const File& file, size_t number) {
  const FileValue& value = file.values[number];
  if (value.initializer >= 0)
    return &file.initializers[static_cast<size_t>(value.initializer)].array;
  return value.constant ? &*value.constant : nullptr;
}

// Whether model.onnx.trainable may select the value: an initializer, or a Constant node that is not
// a number of the arithmetic.
bool may_be_chosen(const File& file, size_t number) {
  const FileValue& value = file.values[number];
  return value.initializer >= 0 ||
         (value.constant && !is_invented(value.name, value.constant->size() == 1) &&
          !is_number_of(value.name, *value.constant));
}

// Applies the file's declarations and the config's patterns, which take precedence over the rule.
class Overrides {
 public:
  Overrides(const File& file, const Selection& selection)
      : file_(file), selection_(selection), statistic_(file.values.size(), false) {
    for (const Node& node : file.nodes) {
      if (node.op != "BatchNormalization" || !node.domain.empty()) continue;
      for (const size_t index : {size_t{3}, size_t{4}})
        if (node.input(index) >= 0) statistic_[static_cast<size_t>(node.input(index))] = true;
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
  // Adds all nodes that read a declared vector to vector_nodes: an optimizing exporter may have
  // merged declared parameters in any slot.
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
        const auto at = std::ranges::lower_bound(nodes, node);
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
