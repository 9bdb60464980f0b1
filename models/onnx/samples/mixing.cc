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

// An axis whose extent is proportional to the batch, and how much of it belongs to a sample.
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
    bool reordered = false;
    const auto in_row = static_cast<int64_t>(labels.labels.size()) / rows_of(labels);
    for (size_t i = 0; i < labels.labels.size(); ++i) {
      const Label label = labels.labels[i];
      if (is_mixed(label))
        first = std::min(first.value_or(node_that_mixed(label)), node_that_mixed(label));
      else if (label != kNoSample)
        reordered |= label != static_cast<int64_t>(i) / in_row || rows_of(labels) != batch_;
    }
    if (first) return network_.nodes[static_cast<size_t>(*first)].description();
    return reordered ? reordering_node(output) : "";
  }

 private:
  // The number of rows that are stored.
  static int64_t rows_of(const Labels& labels) {
    return labels.stored.empty() ? 1 : labels.stored[0];
  }
  const Value& value_of(int number) const { return network_.values[static_cast<size_t>(number)]; }

  void follow(int number) {
    const Node& node = network_.nodes[static_cast<size_t>(number)];
    for (const int input : node.inputs)
      if (input >= 0 && value_of(input).kind == ValueKind::kConstant) label_constant(input, number);
    const std::vector<Labels> made = labels_of_outputs(NodeLabels(network_, number, labels_));
    for (size_t index = 0; index < node.outputs.size() && index < made.size(); ++index) {
      if (node.outputs[index] < 0) continue;
      const auto output = static_cast<size_t>(node.outputs[index]);
      labels_[output] = made[index];
      LOCKSTEP_CHECK(
          made[index].extents == network_.values[output].extents &&
              elements(made[index].stored) == static_cast<int64_t>(made[index].labels.size()),
          "{} ",
          node.description());
      producers_[output] = number;
    }
  }

  // Labels a constant that the node `reader` reads, if it depends on the batch.
  void label_constant(int number, int reader) {
    const auto index = static_cast<size_t>(number);
    if (other_ == nullptr || !seen_.insert(number).second || index >= other_->network.values.size())
      return;
    const Value &here = network_.values[index], &there = other_->network.values[index];
    if (there.kind != ValueKind::kConstant || here.name != there.name ||
        here.array.data == nullptr || there.array.data == nullptr || here.type != there.type)
      return;
    if (here.extents == there.extents) {
      if (!equal_elements(here.array, there.array))
        labels_[index] = uniform(here.extents, mixed_by(reader));
      return;
    }
    const std::optional<BatchAxis> axis = batch_axis(here.extents, there.extents);
    if (!axis) {
      labels_[index] = uniform(here.extents, mixed_by(reader));
    } else if (!repeats(here.array, there.array, *axis, /*samples_first=*/true) &&
               !repeats(here.array, there.array, *axis, /*samples_first=*/false)) {
      Labels labels = uniform(here.extents, kNoSample);
      labels.stored[axis->axis] = here.extents[axis->axis];
      labels.labels.clear();
      for (int64_t i = 0; i < here.extents[axis->axis]; ++i)
        labels.labels.push_back(static_cast<Label>(i / axis->per_sample) | kByPosition);
      labels_[index] = labels;
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

  // Whether every sample has the same elements along the axis, in both batches. With
  // `samples_first` the elements of a sample are consecutive; otherwise the samples alternate.
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

  // Whether samples are missing or out of order, or elements depend on their position.
  bool is_reordered(const Labels& labels) const {
    Label next = 0;
    for (const Label label : labels.labels) {
      if (label == kNoSample || is_mixed(label)) continue;
      if (label > next || label != sample_of(label)) return true;
      if (label == next) ++next;
    }
    return next != 0 && next != static_cast<Label>(batch_);
  }

  // The node that changes the order of samples, among those that the value depends on.
  std::string reordering_node(int value) const {
    while (true) {
      const int number = producers_[static_cast<size_t>(value)];
      if (number < 0) return "output " + value_of(value).name;
      const Node& node = network_.nodes[static_cast<size_t>(number)];
      const auto before = std::ranges::find_if(node.inputs, [&](int input) {
        return input >= 0 && producers_[static_cast<size_t>(input)] >= 0 &&
               is_reordered(labels_[static_cast<size_t>(input)]);
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
  std::set<int> seen_;          // constants that have labels
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
