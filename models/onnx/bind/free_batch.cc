// The file is bound twice, node by node: as it is (`before_`), and with kTimes as many samples
// (`after_`). Where a value's extents differ between both, that axis has the batch. A node with the
// batch in a constant is replaced before it is bound the second time:
//
//   Reshape (1, 196, 768) -> [1, 196, 12, 64]      the first extent becomes -1: the batch stays
//                                                  outermost
//   Expand  (1, 1, 768)   -> [8, 1, 768]           8 becomes the extent of the input's batch
//   Concat  (1, 1, 768), (N, 196, 768), axis 1     the first operand is expanded to N rows
//   LSTM    initial_h (1, 1, 32)                   the same, on its second axis
//
// A constant that has a row for each of the 8 samples is cut to its first one if all are equal.

#include "models/onnx/bind/free_batch.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "models/onnx/bind/binder.h"
#include "models/onnx/nodes/node_view.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {
namespace {

constexpr int64_t kTimes = 3;
constexpr int64_t kUsualExtent = 32;  // of other open axes
constexpr size_t kSparePerNode = 8;   // values that a changed node may need

class Freeing {
 public:
  Freeing(const File& file, const Classes& classes, int64_t batch)
      : batch_(batch),
        freed_(opened(file, batch)),
        before_(file, classes, options_with_batch(file, batch)),
        after_(freed_, classes, options_with_batch(freed_, batch * kTimes)),
        values_(file.values.size()),
        next_value_(values_) {}

  FreedFile run(const File& file) {
    std::vector<Node> nodes;
    std::vector<int> numbers;
    for (const Node& node : file.nodes) {
      before_.add(node);
      Node changed = node;
      change(changed);
      for (Node& helper : helpers_) nodes.push_back(std::move(helper));
      helpers_.clear();
      after_.add(changed);
      keep_outer(node);
      numbers.push_back(static_cast<int>(nodes.size()));
      nodes.push_back(std::move(changed));
    }
    freed_.nodes = std::move(nodes);
    freed_.values.resize(next_value_);
    return {std::move(freed_), "", changes_, std::move(numbers)};
  }

 private:
  // The file with open batch axes, and spare values for the nodes that will be changed.
  static File opened(const File& file, int64_t batch) {
    File open = file;
    for (const std::vector<int>* ends : {&open.inputs, &open.outputs})
      for (const int number : *ends) {
        FileValue& value = open.values[static_cast<size_t>(number)];
        if (!value.extents.empty() && value.extents[0].extent == batch) value.extents[0] = {};
      }
    for (size_t i = 0; i < file.nodes.size() * kSparePerNode; ++i) {
      FileValue value;
      value.name = fmt::format("freed_batch.{}", i);
      open.values.push_back(std::move(value));
    }
    return open;
  }

  bool is_new(int number) const { return static_cast<size_t>(number) >= values_; }
  const Value& was(int number) const { return before_.value_at(number); }
  const Value& is(int number) const { return after_.value_at(number); }
  bool known(int number) const {
    return number >= 0 && after_.is_defined(number) &&
           (is(number).kind == ValueKind::kConstant || is(number).kind == ValueKind::kParameter);
  }
  // Whether a list of extents is a constant that does not follow the batch by itself.
  bool is_fixed_list(int number) const {
    if (!known(number)) return false;
    if (is_new(number)) return true;
    return before_.is_defined(number) &&
           is(number).array.as_int64() == was(number).array.as_int64();
  }

  // The axis with the batch; nothing if the value has none. Throws ConfigError if it has several.
  std::optional<size_t> batch_axis(int number) const {
    if (number < 0) return std::nullopt;
    const Extents &from = was(number).extents, &to = is(number).extents;
    std::optional<size_t> found;
    if (from.size() != to.size())
      throw ConfigError(
          "\"{}\" loses or gains an axis if the batch is not {}", is(number).name, batch_);
    for (size_t axis = 0; axis < from.size(); ++axis) {
      if (from[axis] == to[axis]) continue;
      if (found || to[axis] != from[axis] * kTimes)
        throw ConfigError("\"{}\" has the batch in more than one axis", is(number).name);
      found = axis;
    }
    return found;
  }

  int add_constant(Array array) {
    const int number = new_value();
    freed_.values[static_cast<size_t>(number)].constant = array;
    after_.define(number, std::move(array));
    return number;
  }

  int new_value() {
    LOCKSTEP_CHECK(next_value_ < freed_.values.size());
    return static_cast<int>(next_value_++);
  }

  // Appends a node before the one that is changed. Returns its output.
  int add_node(const Node& like, const char* op, std::vector<int> inputs) {
    Node node;
    node.op = op;
    node.opset = like.opset;
    node.name = like.name.empty() ? "" : fmt::format("{}.{}", like.name, op);
    node.scope = like.scope;
    node.inputs = std::move(inputs);
    node.outputs = {new_value()};
    after_.add(node);
    helpers_.push_back(node);
    return node.outputs[0];
  }

  // The extent of an axis of `number`, as a list.
  int extent_of(const Node& like, int number, size_t axis) {
    const int shape = add_node(like, "Shape", {number});
    return add_node(like, "Gather", {shape, add_constant(list_of({static_cast<int64_t>(axis)}))});
  }

  // `before`, the extent of an axis with the batch, and `behind`, as a list.
  int list_around(const Node& like, const Extents& extents, size_t axis, int extent) {
    std::vector<int> parts;
    const auto at = extents.begin() + static_cast<std::ptrdiff_t>(axis);
    if (axis > 0) parts.push_back(add_constant(list_of({extents.begin(), at})));
    parts.push_back(extent);
    if (axis + 1 < extents.size()) parts.push_back(add_constant(list_of({at + 1, extents.end()})));
    if (parts.size() == 1) return extent;
    Node node;
    node.op = "Concat";
    node.opset = like.opset;
    node.attributes["axis"] = int64_t{0};
    node.inputs = std::move(parts);
    node.outputs = {new_value()};
    after_.add(node);
    helpers_.push_back(node);
    return node.outputs[0];
  }

  // The value with one row on this axis, where it has one for each sample.
  int one_row(const Node& like, int number, size_t axis) {
    const Value& value = is(number);
    if (value.extents[axis] == 1) return number;
    if (value.kind != ValueKind::kConstant || value.extents[axis] != batch_)
      throw ConfigError("{}: its operand \"{}\" has {} rows, and only its batch of {} fits them",
                        like.description(),
                        value.name,
                        value.extents[axis],
                        batch_);
    // Rows of (outer, batch, inner).
    const auto size = size_of(value.type);
    size_t outer = 1, inner = size;
    for (size_t i = 0; i < axis; ++i) outer *= static_cast<size_t>(value.extents[i]);
    for (size_t i = axis + 1; i < value.extents.size(); ++i)
      inner *= static_cast<size_t>(value.extents[i]);
    Extents extents = value.extents;
    extents[axis] = 1;
    const NewArray one = make_array(value.type, extents);
    const std::byte* from = value.array.data.get();
    const auto rows = static_cast<size_t>(batch_);
    for (size_t i = 0; i < outer; ++i) {
      const std::byte* first = from + i * rows * inner;
      for (size_t row = 1; row < rows; ++row)
        if (std::memcmp(first, first + row * inner, inner) != 0)
          throw ConfigError(
              "{}: its operand \"{}\" has a row of its own for each of the {} samples",
              like.description(),
              value.name,
              batch_);
      std::memcpy(one.data + i * inner, first, inner);
    }
    return add_constant(one.array);
  }

  // The operand, with as many rows on `axis` as `like_value` has on `like_axis`.
  int with_rows(const Node& like, int number, size_t axis, int like_value, size_t like_axis) {
    const int row = one_row(like, number, axis);
    Extents extents = is(row).extents;
    const int shape = list_around(like, extents, axis, extent_of(like, like_value, like_axis));
    return add_node(like, "Expand", {row, shape});
  }

  void change(Node& node) {
    if (!node.domain.empty()) return;
    const int64_t count = changes_;
    if (node.op == "Gather") change_gather(node);
    if (node.op == "Reshape") change_reshape(node);
    if (node.op == "Expand") change_expand(node);
    if (node.op == "Concat") change_concat(node);
    if (node.op == "LSTM" || node.op == "GRU" || node.op == "RNN") change_recurrence(node);
    if (batch_ > 1 && changes_ == count) change_operands(node);
  }

  // The axis of `to` that has the batch, if `offset` is the product of all extents outside of it:
  // the batch alone if there is such an axis, `before` first. If it ends one axis or begins the
  // next, a matrix has it in its rows (time and samples), and other values in the next axis
  // (samples and heads).
  std::optional<size_t> axis_at(int64_t offset, size_t before, const Extents& to) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < to.size(); ++i) {
      const int64_t outside = product(to, 0, i);
      if (outside == 0 || offset % outside != 0) continue;
      if (to[i] % (offset / outside * batch_) == 0) found.push_back(i);
    }
    if (found.empty()) return std::nullopt;
    const auto alone = [&](size_t i) { return to[i] == batch_ && product(to, 0, i) == offset; };
    if (before < to.size() && alone(before)) return before;
    const auto first = std::ranges::find_if(found, alone);
    if (first != found.end()) return *first;
    return to.size() == 2 ? found.front() : found.back();
  }

  // How many times the batch lies side by side in its axis: 8 for samples of 8 steps of time, with
  // time outside.
  int64_t outer_of(int number) const {
    const auto found = outer_.find(number);
    return found == outer_.end() ? 1 : found->second;
  }

  // The outputs of other nodes than Reshape have the batch as their inputs do, if its axis is kept.
  void keep_outer(const Node& node) {
    for (const int input : node.inputs) {
      const auto outer = outer_.find(input);
      if (outer == outer_.end() || outer->second == 1) continue;
      const auto axis = batch_axis(input);
      for (const int output : node.outputs) {
        if (outer_.contains(output)) continue;
        const auto kept = batch_axis(output);
        if (axis && kept && was(input).extents[*axis] == was(output).extents[*kept])
          outer_[output] = outer->second;
      }
    }
  }

  // PyTorch's as_strided() takes elements of a row one after the other, often all in their order.
  // That is a Reshape, and becomes one.
  void change_gather(Node& node) {
    const int input = node.input(0), indices = node.input(1);
    if (was(input).extents.size() != 1 || !batch_axis(input) || !is_fixed_list(indices)) return;
    const std::vector<int64_t> order = is(indices).array.as_int64();
    if (order != numbers_from<int64_t>(static_cast<size_t>(was(input).extents[0]))) return;
    node.op = "Reshape";
    node.attributes.clear();
    node.inputs[1] = add_constant(list_of(is(indices).extents));
  }

  void change_reshape(Node& node) {
    const int input = node.input(0), shape = node.input(1);
    if (!is_fixed_list(shape)) return;
    const auto axis = batch_axis(input);
    if (!axis) return;
    const Extents &from = was(input).extents, &to = was(node.output(0)).extents;
    const int64_t offset = product(from, 0, *axis) * outer_of(input);
    const std::optional<size_t> target = axis_at(offset, *axis, to);
    if (!target)
      throw ConfigError(
          "{}: its shape {} has no axis that is only the batch", node.description(), to_string(to));
    outer_[node.output(0)] = offset / product(to, 0, *target);
    std::vector<int64_t> list = to;
    list[*target] = -1;
    if (list == is(shape).array.as_int64()) return;
    node.inputs[1] = add_constant(list_of(list));
    ++changes_;
  }

  // Extents of the shape that are the batch become 1, which keeps the input's; if the input has no
  // batch, the shape takes it from the network's input.
  void change_expand(Node& node) {
    const int input = node.input(0), shape = node.input(1);
    if (batch_ == 1 || !is_fixed_list(shape)) return;
    std::vector<int64_t> list = is(shape).array.as_int64();
    const auto axis = batch_axis(input);
    if (axis) {
      const size_t at = list.size() - is(input).extents.size() + *axis;
      if (list.size() < is(input).extents.size() || list[at] != was(input).extents[*axis]) return;
      list[at] = 1;
      node.inputs[1] = add_constant(list_of(list));
    } else {
      if (list.empty() || list[0] != batch_) return;
      const bool repeats = is(input).extents.size() < list.size() || is(input).extents[0] == 1;
      if (!repeats) return;
      node.inputs[1] = list_around(node, list, 0, extent_of(node, freed_.inputs[0], 0));
    }
    ++changes_;
  }

  void change_concat(Node& node) {
    std::optional<size_t> axis;
    int like = -1;
    for (const int input : node.inputs)
      if (const auto found = batch_axis(input)) {
        axis = found;
        like = input;
      }
    if (!axis) return;
    const auto rank = static_cast<int64_t>(is(like).extents.size());
    int64_t joined = node.integer("axis", 0);
    if (joined < 0) joined += rank;
    if (joined == static_cast<int64_t>(*axis)) return;
    for (int& input : node.inputs) {
      if (batch_axis(input)) continue;
      input = with_rows(node, input, *axis, like, *axis);
      ++changes_;
    }
  }

  // Initial states (directions, N, hidden) have a row for each sample of the input (T, N, ...).
  void change_recurrence(Node& node) {
    constexpr size_t kSamples = 1;
    if (node.integer("layout", 0) != 0) return;
    const auto axis = batch_axis(node.input(0));
    if (!axis || *axis != kSamples) return;
    for (const size_t index : {size_t{5}, size_t{6}}) {
      if (node.input(index) < 0 || batch_axis(node.input(index))) continue;
      node.inputs[index] = with_rows(node, node.input(index), kSamples, node.input(0), kSamples);
      ++changes_;
    }
  }

  // Constants with a row for each sample, such as positions, in a node that broadcasts.
  void change_operands(Node& node) {
    constexpr const char* kBroadcast[] = {"Add", "Sub", "Mul", "Div", "Where", "And", "Or"};
    if (std::ranges::find(kBroadcast, node.op) == std::end(kBroadcast)) return;
    size_t from_end = 0;
    for (const int input : node.inputs)
      if (const auto axis = batch_axis(input)) from_end = is(input).extents.size() - *axis;
    if (from_end == 0) return;
    for (int& input : node.inputs) {
      const Extents& extents = is(input).extents;
      if (batch_axis(input) || extents.size() < from_end) continue;
      const size_t axis = extents.size() - from_end;
      if (extents[axis] != batch_) continue;
      input = one_row(node, input, axis);
      ++changes_;
    }
  }

  const int64_t batch_;
  File freed_;
  Binder before_, after_;
  const size_t values_;  // of the file
  size_t next_value_;
  std::map<int, int64_t> outer_;  // see outer_of(), by the value's number
  std::vector<Node> helpers_;     // of the node that is changed
  int64_t changes_ = 0;
};

}  // namespace

BindOptions options_with_batch(const File& file, int64_t batch) {
  BindOptions options{.batch = batch};
  for (const int input : file.inputs) {
    const FileValue& value = file.values[static_cast<size_t>(input)];
    for (size_t axis = 1; axis < value.extents.size(); ++axis) {
      const OpenExtent& open = value.extents[axis];
      const std::string path = fmt::format("{}.{}", value.name, axis);
      if (open.extent < 0) options.axes[open.name.empty() ? path : open.name] = kUsualExtent;
    }
  }
  return options;
}

FreedFile free_batch(const File& file, const Classes& classes, int64_t batch) {
  try {
    return Freeing(file, classes, batch).run(file);
  } catch (const ConfigError& error) {
    return {.reason = error.what()};
  }
}

}  // namespace lockstep::onnx
