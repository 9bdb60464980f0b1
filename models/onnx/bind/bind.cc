#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "models/onnx/bind/binder.h"
#include "models/onnx/bind/untrainable.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {
namespace {

// Max bytes of one folded value.
constexpr int64_t kMaxFoldedBytes = int64_t{256} << 20;

std::atomic<int64_t> binds{0};  // see bind_count()

bool is_empty(const std::vector<Form>& forms) {
  return std::ranges::all_of(forms, [](const Form& form) { return elements(form.extents) == 0; });
}

std::vector<Array> empty_arrays(const std::vector<Form>& forms) {
  std::vector<Array> arrays;
  for (const Form& form : forms) arrays.push_back(make_array(form.type, form.extents).array);
  return arrays;
}

}  // namespace

Binder::Binder(const File& file, const Classes& classes, const BindOptions& options)
    : file_(file),
      running_norms_(options.running_norms),
      wanted_outputs_(options.outputs),
      losses_(options.losses),
      max_folded_bytes_(options.max_folded_bytes),
      spare_folded_bytes_(options.max_folded_bytes),
      learns_(classes.parameter),
      defined_(file.values.size(), false) {
  if (options.all_constant) learns_.clear();
  learns_.resize(file.values.size(), false);
  network_.values.resize(file.values.size());
  for (size_t i = 0; i < file.values.size(); ++i) {
    Value& v = network_.values[i];
    v.name = file.values[i].name;
    const int number = file.values[i].initializer;
    if (number >= 0)
      v.array = file.initializers[static_cast<size_t>(number)].array;
    else if (file.values[i].constant)
      v.array = *file.values[i].constant;
    else
      continue;
    v.type = v.array.type;
    v.extents = v.array.extents;
    v.kind = learns_[i] ? ValueKind::kParameter : ValueKind::kConstant;
    v.initializer = learns_[i] ? number : -1;
    defined_[i] = true;
  }
  const std::vector<Extents> extents = input_extents(file, options);
  for (size_t i = 0; i < file.inputs.size(); ++i) {
    const auto number = static_cast<size_t>(file.inputs[i]);
    if (!file.values[number].typed)
      throw ConfigError(
          "{}: input \"{}\" has no type in the file", file.path, file.values[number].name);
    network_.values[number].type = file.values[number].type;
    network_.values[number].extents = extents[i];
    network_.values[number].kind = ValueKind::kInput;
    defined_[number] = true;
    const auto known = options.known.find(file.values[number].name);
    if (known == options.known.end()) continue;
    network_.values[number].kind = ValueKind::kConstant;
    network_.values[number].array = known->second;
    LOCKSTEP_CHECK(known->second.type == file.values[number].type &&
                   known->second.extents == extents[i]);
  }
  network_.inputs = file.inputs;
  network_.outputs = file.outputs;
}

void Binder::define(int number, Array array) {
  Value& defined = value(number);
  defined.type = array.type;
  defined.extents = array.extents;
  defined.kind = ValueKind::kConstant;
  defined.array = std::move(array);
  defined_[static_cast<size_t>(number)] = true;
}

void Binder::add(const Node& node) {
  try {
    if (add_of_sequence(node)) return;
    if (is_masking(node))
      add_masking(node);
    else if (running_norms_ && node.op == "BatchNormalization" && node.domain.empty())
      add_running_norm(node);
    else {
      require_own_statistics(node);
      add_computation(node);
    }
  } catch (const ConfigError& error) {
    throw ConfigError("{}: {}", file_.path, error.what());
  }
}

// If a module calls a norm twice, the second call reads a copy of the statistics, which would
// diverge from them in training.
void Binder::require_own_statistics(const Node& node) const {
  if (node.op != "BatchNormalization" || !node.domain.empty()) return;
  for (const size_t index : {size_t{3}, size_t{4}}) {
    const int number = node.input(index);
    if (number < 0 || !defined_[static_cast<size_t>(number)]) continue;
    const FileValue& origin = file_.values[static_cast<size_t>(number)];
    const Value& known = network_.values[static_cast<size_t>(number)];
    if (known.kind == ValueKind::kConstant && origin.initializer < 0 && !origin.constant)
      NodeView(node, network_.values)
          .refuse(
              "its statistic \"{}\" is computed, as happens if a module calls a norm twice; must "
              "be a constant of the file, or set model.onnx.batch_norm: RUNNING, which keeps the "
              "statistics",
              origin.name);
  }
}

bool Binder::lacks_input(const Node& node) const {
  return std::ranges::any_of(node.inputs, [&](int input) {
    return input >= 0 && !defined_[static_cast<size_t>(input)] && !sequences_.contains(input);
  });
}

void Binder::require_inputs(const Node& node) const {
  const NodeView view(node, network_.values);
  for (size_t index = 0; index < node.inputs.size(); ++index) {
    const int number = node.inputs[index];
    if (number < 0 || defined_[static_cast<size_t>(number)]) continue;
    if (sequences_.count(number) > 0) view.refuse("its input {} is a sequence", index);
    view.refuse("its input {} has no source", index);
  }
}

// Checks the outputs of a rule, on which later rules rely.
void Binder::require_plausible(const NodeView& view,
                               const std::vector<Form>& forms,
                               bool known) const {
  if (forms.size() < view.outputs())
    view.refuse("has {} outputs; must have at most {}", view.outputs(), forms.size());
  for (size_t i = 0; i < view.outputs(); ++i) {
    const Form& form = forms[i];
    const int64_t count = checked_elements(view, form.extents);
    if (form.extents.size() > 16)
      view.refuse("an output of {} axes; must have at most 16", form.extents.size());
    if (known &&
        count > kMaxFoldedBytes / static_cast<int64_t>(std::max(size_of(form.type), size_t{1})))
      view.refuse(
          "its output, of extents {}, is known before the start but would take more than {} MB",
          to_string(form.extents),
          kMaxFoldedBytes >> 20);
  }
}

bool Binder::evaluate(const Node& node, const NodeType& type, const std::vector<Form>& forms) {
  const NodeView view(node, network_.values);
  if (type.evaluator == nullptr) return false;
  // An output without elements is known, whatever its inputs are.
  for (size_t index = 0; index < std::min(node.inputs.size(), type.read_inputs); ++index)
    if (view.has(index) && !view.known(index) && !is_empty(forms)) return false;
  for (size_t index = 0; index < node.inputs.size(); ++index)
    if (view.has(index) && view.type(index) == ElementType::kString) return false;
  require_plausible(view, forms, true);
  const std::vector<Array> arrays =
      is_empty(forms) ? empty_arrays(forms) : type.evaluator(view, forms);
  LOCKSTEP_CHECK(arrays.size() >= node.outputs.size());
  for (const Array& array : arrays) spare_folded_bytes_ -= static_cast<int64_t>(array.bytes());
  if (spare_folded_bytes_ < 0)
    view.refuse("with its output the values that are known before the start take more than {} MB",
                max_folded_bytes_ >> 20);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] < 0) continue;
    LOCKSTEP_CHECK(arrays[i].type == forms[i].type && arrays[i].extents == forms[i].extents);
    value(node.outputs[i]).kind = ValueKind::kConstant;
    value(node.outputs[i]).array = arrays[i];
  }
  return true;
}

void Binder::add_computation(const Node& node) {
  const NodeType* type = type_of(node);
  if (type == nullptr) NodeView(node, network_.values).refuse("{}", why_unknown(node));
  if (!node.unsupported_attributes.empty())
    NodeView(node, network_.values)
        .refuse("attribute {} is of a kind that is not known", node.unsupported_attributes[0]);
  require_inputs(node);
  const NodeView view(node, network_.values);
  std::vector<Form> forms = type->rule(view);
  require_plausible(view, forms, false);
  if (forms.size() > node.outputs.size()) forms.resize(node.outputs.size());
  const bool known = evaluate(node, *type, forms);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] < 0) continue;
    Value& output = value(node.outputs[i]);
    output.type = forms[i].type;
    output.extents = forms[i].extents;
    defined_[static_cast<size_t>(node.outputs[i])] = true;
  }
  if (!known) network_.nodes.push_back(node);
}

// For attention with dropout, PyTorch's exporter adds a boolean mask to scores, which ONNX does not
// allow. It means the same as in PyTorch: add 0 if true, otherwise -infinity.
bool Binder::is_masking(const Node& node) const {
  const NodeView view(node, network_.values);
  if (node.op != "Add" || !node.domain.empty() || !view.has(0) || !view.has(1)) return false;
  if (!is_floating(view.type(0)) || view.type(1) != ElementType::kBool) return false;
  bool softmax = false;
  for (const Node& other : file_.nodes) {
    if (std::ranges::count(other.inputs, node.output(0)) == 0) continue;
    softmax = other.op == "Softmax";
    if (!softmax) break;
  }
  return softmax;
}

void Binder::add_masking(const Node& node) {
  const ElementType type = value(node.input(0)).type;
  const std::string mask = value(node.input(1)).name;
  const auto number = [&](const char* name, double x) {
    return new_constant(mask + name, array_of(type, {}, {x}));
  };
  const int kept = number(".kept", 0);
  const int left = number(".left", -std::numeric_limits<double>::infinity());
  const int added = new_value(mask + ".added");
  add_computation(node_like(node, "Where", {node.input(1), kept, left}, {added}));
  add_computation(node_like(node, "Add", {node.input(0), added}, node.outputs));
}

// Adds (x - mean) * rstd * scale + bias with constant mean and rstd.
void Binder::add_running_norm(const Node& node) {
  require_inputs(node);
  const NodeView view(node, network_.values);
  type_of(node)->rule(view);  // which checks the extents
  for (const size_t index : {size_t{3}, size_t{4}})
    if (!view.known(index))
      view.refuse("its input {} is computed; must be a constant of the file", index);
  const std::vector<double> mean = view.array(3).as_double();
  std::vector<double> rstd = view.array(4).as_double();
  const double epsilon = static_cast<double>(node.number("epsilon", 1e-5f));
  for (double& x : rstd) x = 1 / std::sqrt(x + epsilon);
  Extents channels(std::max<size_t>(view.rank(0), 2) - 1, 1);
  channels[0] = static_cast<int64_t>(mean.size());
  const ElementType type = view.type(0);
  const std::string name = value(node.output(0)).name;
  const int shape = new_constant(name + ".channels", list_of(channels));
  int last = node.input(0);
  const auto apply = [&](const char* op, int with, int to) {
    add_computation(node_like(node, op, {last, with}, {to}));
    last = to;
  };
  const auto vector = [&](size_t index) {
    const int reshaped = new_value(fmt::format("{}.{}", name, index == 1 ? "scale" : "bias"));
    add_computation(node_like(node, "Reshape", {node.input(index), shape}, {reshaped}));
    return reshaped;
  };
  apply("Sub",
        new_constant(name + ".mean", array_of(type, channels, mean)),
        new_value(name + ".centred"));
  apply("Mul",
        new_constant(name + ".rstd", array_of(type, channels, rstd)),
        new_value(name + ".normed"));
  const int scale = vector(1), bias = vector(2);
  apply("Mul", scale, new_value(name + ".scaled"));
  apply("Add", bias, node.output(0));
}

Network Binder::finish() {
  std::vector<bool> needed(network_.values.size(), false);
  for (size_t i = 0; i < network_.outputs.size(); ++i) {
    const int output = network_.outputs[i];
    if (!wanted_outputs_.empty() && std::ranges::count(wanted_outputs_, i) == 0) continue;
    if (!defined_[static_cast<size_t>(output)])
      throw ConfigError(
          "{}: output \"{}\" is a sequence; must be a tensor", file_.path, value(output).name);
    needed[static_cast<size_t>(output)] = true;
  }
  std::vector<Node> nodes;
  for (auto node = network_.nodes.rbegin(); node != network_.nodes.rend(); ++node) {
    const bool wanted = std::ranges::any_of(node->outputs, [&](int number) {
      return number >= 0 && needed[static_cast<size_t>(number)];
    });
    if (!wanted) continue;
    for (const int number : node->inputs)
      if (number >= 0) needed[static_cast<size_t>(number)] = true;
    nodes.push_back(std::move(*node));
  }
  std::ranges::reverse(nodes);
  network_.nodes = std::move(nodes);
  if (wanted_outputs_.size() > losses_) wanted_outputs_.resize(losses_);
  hold_unreached(network_, wanted_outputs_);
  for (size_t i = 0; i < needed.size(); ++i)
    if (!needed[i]) network_.values[i].array = {};
  network_.folded_bytes = max_folded_bytes_ - spare_folded_bytes_;
  return std::move(network_);
}

int64_t bind_count() { return binds; }

Network bind(const File& file, const Classes& classes, const BindOptions& options) {
  ++binds;
  Binder binder(file, classes, options);
  for (const Node& node : file.nodes) binder.add(node);
  return binder.finish();
}

std::vector<std::string> bind_problems(const File& file,
                                       const Classes& classes,
                                       const BindOptions& options) {
  Binder binder(file, classes, options);
  std::vector<std::string> problems;
  for (const Node& node : file.nodes) {
    if (binder.lacks_input(node)) continue;
    try {
      binder.add(node);
    } catch (const ConfigError& error) {
      const bool known = type_of(node) != nullptr || node.op.find("Sequence") != std::string::npos;
      if (known) problems.emplace_back(error.what());
    }
  }
  return problems;
}

}  // namespace lockstep::onnx
