#include "models/onnx/samples/mixing.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "models/onnx/samples/node_labels.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {
namespace {

bool equal_elements(const Array& a, const Array& b) {
  return a.data == b.data || std::memcmp(a.data.get(), b.data.get(), a.bytes()) == 0;
}

// An axis that grows with the batch, and how much of it belongs to a sample.
struct BatchAxis {
  size_t axis;
  int64_t per_sample;
};

class Mixing {
 public:
  Mixing(const BoundNetwork& bound, const BoundNetwork* other)
      : network_(bound.network), batch_(bound.batch), other_(other) {
    producers_.resize(network_.values.size(), -1);
    for (const Value& value : network_.values) labels_.push_back(uniform(value.extents, kNoSample));
    for (const int input : network_.inputs) {
      const Value& value = value_of(input);
      if (value.kind == ValueKind::kInput)
        labels_[static_cast<size_t>(input)] = by_rows(value.extents);
    }
    for (size_t number = 0; number < network_.nodes.size(); ++number)
      follow(static_cast<int>(number));
  }

  std::string of(int output) const {
    const Labels& labels = labels_[static_cast<size_t>(output)];
    std::optional<int> first;
    bool misplaced = false;
    const auto in_row = static_cast<int64_t>(labels.labels.size()) / rows_of(labels);
    for (size_t i = 0; i < labels.labels.size(); ++i) {
      const Label label = labels.labels[i];
      if (is_mixed(label))
        first = std::min(first.value_or(node_that_mixed(label)), node_that_mixed(label));
      else if (label != kNoSample)
        misplaced |= label != static_cast<int64_t>(i) / in_row || rows_of(labels) != batch_;
    }
    if (first) return network_.nodes[static_cast<size_t>(*first)].description();
    return misplaced ? misplacing_node(output) : "";
  }

 private:
  // Those that are stored apart.
  static int64_t rows_of(const Labels& labels) {
    return labels.stored.empty() ? 1 : labels.stored[0];
  }
  const Value& value_of(int number) const { return network_.values[static_cast<size_t>(number)]; }

  void follow(int number) {
    const Node& node = network_.nodes[static_cast<size_t>(number)];
    for (const int input : node.inputs)
      if (input >= 0 && value_of(input).kind == ValueKind::kConstant) label_constant(input, number);
    const std::vector<Labels> made = labels_of_outputs(NodeLabels(network_, number, labels_));
    for (size_t place = 0; place < node.outputs.size() && place < made.size(); ++place) {
      if (node.outputs[place] < 0) continue;
      const auto output = static_cast<size_t>(node.outputs[place]);
      labels_[output] = made[place];
      LOCKSTEP_CHECK(
          made[place].extents == network_.values[output].extents &&
              elements(made[place].stored) == static_cast<int64_t>(made[place].labels.size()),
          "{} ",
          node.description());
      producers_[output] = number;
    }
  }

  // A constant that depends on the batch, which node `reader` reads.
  void label_constant(int number, int reader) {
    const auto place = static_cast<size_t>(number);
    if (other_ == nullptr || !seen_.insert(number).second || place >= other_->network.values.size())
      return;
    const Value &here = network_.values[place], &there = other_->network.values[place];
    if (there.kind != ValueKind::kConstant || here.name != there.name ||
        here.array.data == nullptr || there.array.data == nullptr || here.type != there.type)
      return;
    if (here.extents == there.extents) {
      if (!equal_elements(here.array, there.array))
        labels_[place] = uniform(here.extents, mixed_by(reader));
      return;
    }
    const std::optional<BatchAxis> axis = batch_axis(here.extents, there.extents);
    if (!axis) {
      labels_[place] = uniform(here.extents, mixed_by(reader));
    } else if (!repeats(here.array, there.array, *axis, /*samples_first=*/true) &&
               !repeats(here.array, there.array, *axis, /*samples_first=*/false)) {
      Labels labels = uniform(here.extents, kNoSample);
      labels.stored[axis->axis] = here.extents[axis->axis];
      labels.labels.clear();
      for (int64_t i = 0; i < here.extents[axis->axis]; ++i)
        labels.labels.push_back(static_cast<Label>(i / axis->per_sample) | kPlaced);
      labels_[place] = labels;
    }
  }

  std::optional<BatchAxis> batch_axis(const Extents& here, const Extents& there) const {
    std::optional<BatchAxis> found;
    if (here.size() != there.size()) return found;
    for (size_t axis = 0; axis < here.size(); ++axis) {
      if (here[axis] == there[axis]) continue;
      const int64_t each = here[axis] / batch_;
      if (found || each == 0 || each * batch_ != here[axis] || each * other_->batch != there[axis])
        return std::nullopt;
      found = {axis, each};
    }
    return found;
  }

  // Whether every sample has the same elements along the axis, in both batches. Those of a sample lie together, or one
  // of each sample.
  bool repeats(const Array& here,
               const Array& there,
               const BatchAxis& axis,
               bool samples_first) const {
    const Extents& extents = here.extents;
    const auto begin = extents.begin() + static_cast<int64_t>(axis.axis);
    const auto bytes =
        static_cast<int64_t>(size_of(here.type)) * elements({begin + 1, extents.end()});
    const int64_t rows = elements({extents.begin(), begin});
    for (const Array* array : {&here, &there}) {
      const int64_t batch = array == &here ? batch_ : other_->batch;
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = 0; i < batch * axis.per_sample; ++i) {
          const int64_t first = samples_first ? i % axis.per_sample : i / batch * batch_;
          if (std::memcmp(array->data.get() + (row * batch * axis.per_sample + i) * bytes,
                          here.data.get() + (row * batch_ * axis.per_sample + first) * bytes,
                          static_cast<size_t>(bytes)) != 0)
            return false;
        }
    }
    return true;
  }

  // Whether the samples appear in another order than that of the batch, or not all of them, or their places count.
  bool is_misplaced(const Labels& labels) const {
    Label next = 0;
    for (const Label label : labels.labels) {
      if (label == kNoSample || is_mixed(label)) continue;
      if (label > next || label != sample_of(label)) return true;
      if (label == next) ++next;
    }
    return next != 0 && next != static_cast<Label>(batch_);
  }

  // The node where samples come out of their order, behind which this value is.
  std::string misplacing_node(int value) const {
    while (true) {
      const int number = producers_[static_cast<size_t>(value)];
      if (number < 0) return "output " + value_of(value).name;
      const Node& node = network_.nodes[static_cast<size_t>(number)];
      const auto before = std::ranges::find_if(node.inputs, [&](int input) {
        return input >= 0 && producers_[static_cast<size_t>(input)] >= 0 &&
               is_misplaced(labels_[static_cast<size_t>(input)]);
      });
      if (before == node.inputs.end()) return node.description();
      value = *before;
    }
  }

  const Network& network_;
  const int64_t batch_;
  const BoundNetwork* other_;
  std::vector<Labels> labels_;  // by value
  std::vector<int> producers_;  // by value: the node, or -1
  std::set<int> seen_;          // constants
};

}  // namespace

std::string mixing_node(const BoundNetwork& bound,
                        const BoundNetwork* other,
                        const std::vector<int>& outputs) {
  const Mixing mixing(bound, other);
  for (const int output : outputs)
    if (std::string node = mixing.of(output); !node.empty()) return node;
  return "";
}

}  // namespace lockstep::onnx
