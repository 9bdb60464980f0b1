#include "models/onnx/lowering/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <ranges>

#include "models/onnx/lowering/fusions.h"
#include "models/onnx/lowering/pointwise_functions.h"
#include "runtime/base/error.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

// The permutation from (N, C, ...) to (N, ..., C).
std::vector<int> to_channels_last(int rank) {
  std::vector<int> permutation(static_cast<size_t>(rank));
  std::iota(permutation.begin(), permutation.end(), 0);
  std::rotate(permutation.begin() + 1, permutation.begin() + 2, permutation.end());
  return permutation;
}

std::vector<int> from_channels_last(int rank) {
  std::vector<int> permutation(static_cast<size_t>(rank));
  std::iota(permutation.begin(), permutation.end(), 0);
  std::rotate(permutation.begin() + 1, permutation.end() - 1, permutation.end());
  return permutation;
}

std::vector<int> last_two_swapped(int rank) {
  std::vector<int> permutation(static_cast<size_t>(rank));
  std::iota(permutation.begin(), permutation.end(), 0);
  std::swap(permutation[permutation.size() - 1], permutation[permutation.size() - 2]);
  return permutation;
}

// Whether the node leaves its elements as they are in the graph, where all floating-point types are
// the compute type and all integer types are i32.
bool is_copy(const Node& node, const Value& from, const Value& to) {
  if (!node.domain.empty()) return false;
  if (node.op == "Reshape" || node.op == "Expand" || node.op == "Flatten")
    return from.extents == to.extents && from.type == to.type;
  return node.op == "Identity" || ((node.op == "Cast" || node.op == "CastLike") &&
                                   is_floating(from.type) == is_floating(to.type) &&
                                   is_integer(from.type) == is_integer(to.type));
}

// Whether the node is a copy that passes no gradient.
bool stops_gradient(const Node& node, const Value& to) {
  return node.detached && is_floating(to.type);
}

bool is_plain_transpose(const Node& node, size_t rank) {
  return node.op == "Transpose" && rank == 2 &&
         node.integers("perm", {1, 0}) == std::vector<int64_t>{1, 0};
}

// Whether (N, C, ...) and (N, ..., C) have their elements in the same order.
bool same_in_both_orders(const Extents& extents) {
  return extents[1] == 1 || elements({extents.begin() + 2, extents.end()}) == 1;
}

Shape channels_last_shape(const Value& value) {
  const Shape shape = shape_of(value);
  Shape last;
  for (const int dimension : to_channels_last(shape.rank())) last.append(shape[dimension]);
  return last;
}

}  // namespace

void refuse(const Node& node, const std::string& what) {
  throw ConfigError("{}: {}", node.description(), what);
}

Lowering::Lowering(const Network& network, GraphBuilder& builder)
    : network_(network),
      builder_(builder),
      layouts_(network.values.size()),
      sources_(network.values.size()),
      origins_(network.values.size()),
      readers_(network.values.size()),
      producers_(network.values.size(), -1),
      learns_(network.values.size(), false),
      fused_(network.nodes.size(), false),
      lowered_(network.nodes.size(), false),
      token_masks_(network) {
  std::iota(origins_.begin(), origins_.end(), 0);
  for (size_t i = 0; i < network.values.size(); ++i) {
    if (network.values[i].kind != ValueKind::kParameter) continue;
    sources_[i] = {static_cast<int>(i), false};
    learns_[i] = true;
  }
  for (size_t i = 0; i < network.nodes.size(); ++i) trace(i);
}

// Records the producer, readers, origin and source of the node's inputs and outputs.
void Lowering::trace(size_t number) {
  const Node& node = network_.nodes[number];
  for (const int output : node.outputs)
    if (output >= 0) producers_[static_cast<size_t>(output)] = static_cast<int>(number);
  const bool known = node.input(0) >= 0 && node.output(0) >= 0;
  const bool stops = known && stops_gradient(node, value(node.output(0)));
  const bool copies = known && !stops && is_copy(node, value(node.input(0)), value(node.output(0)));
  for (const int input : node.inputs) {
    if (input < 0) continue;
    if (learns(input) && !stops)
      for (const int output : node.outputs)
        if (output >= 0 && is_floating(value(output).type))
          learns_[static_cast<size_t>(output)] = true;
    std::vector<size_t>& readers = readers_[static_cast<size_t>(origin_of(input))];
    if (!copies && (readers.empty() || readers.back() != number)) readers.push_back(number);
  }
  if (!known) return;
  const auto output = static_cast<size_t>(node.output(0));
  const Source source = source_of(node.input(0));
  if (copies) {
    sources_[output] = source;
    origins_[output] = origin_of(node.input(0));
  } else if (source.value >= 0 && is_plain_transpose(node, value(source.value).extents.size())) {
    sources_[output] = {source.value, !source.transposed};
  }
}

bool Lowering::is_done(size_t number) const {
  const int output = network_.nodes[number].output(0);
  return fused_[number] ||
         (output >= 0 && (origin_of(output) != output || source_of(output).value >= 0));
}

// Reports a node whose op cannot be trained, and the later nodes for which this is true as well.
void Lowering::refuse_op(size_t number) const {
  std::map<std::string, int> others;
  for (size_t i = number + 1; i < network_.nodes.size(); ++i) {
    const Node& node = network_.nodes[i];
    if (!is_done(i) && lower_of(node) == nullptr)
      ++others[node.domain.empty() ? node.op : node.domain + "." + node.op];
  }
  std::string text;
  for (const auto& [op, count] : others)
    text += fmt::format("{}{} {}", text.empty() ? "; nor can " : ", ", count, op);
  refuse(network_.nodes[number], "the op cannot be trained" + text);
}

void Lowering::run() {
  fuse_nodes(*this);
  for (size_t i = 0; i < network_.nodes.size(); ++i) lower_node(i);
}

void Lowering::lower_node(size_t number) {
  if (lowered_[number] || is_done(number)) return;
  lowered_[number] = true;
  const Node& node = network_.nodes[number];
  if (const auto found = replacements_.find(number); found != replacements_.end())
    return found->second(*this, node);
  if (node.output(0) >= 0 && stops_gradient(node, value(node.output(0)))) return detach(node);
  const LowerNode lower = lower_of(node);
  if (lower == nullptr) refuse_op(number);
  lower(*this, node);
  require_outputs(node);
}

void Lowering::detach(const Node& node) {
  PointwiseProgram same;
  same.input(0);
  const TensorId y = ops::pointwise(builder_, name_of(node), {plain(node.input(0))}, same);
  builder_[y].detached = true;
  set(node.output(0), y);
}

bool Lowering::lower_early(int number, const Node& node) {
  std::set<size_t> needed;
  std::vector<int> values = {number};
  while (!values.empty()) {
    const int producer = producers_[static_cast<size_t>(values.back())];
    values.pop_back();
    if (producer < 0) continue;
    const auto index = static_cast<size_t>(producer);
    const Node& found = network_.nodes[index];
    if (&found == &node) return false;
    if (lowered_[index] || !needed.insert(index).second) continue;
    for (const int input : found.inputs)
      if (input >= 0) values.push_back(input);
  }
  for (const size_t index : needed) lower_node(index);
  return true;
}

void Lowering::require_outputs(const Node& node) const {
  for (const int output : node.outputs) {
    if (output < 0) continue;
    const Layouts& layouts = layouts_[static_cast<size_t>(output)];
    if (layouts.is_set() || deferred(output) != nullptr) continue;
    if (is_read(output))
      refuse(node, fmt::format("its output \"{}\" is not supported", value(output).name));
  }
}

bool Lowering::is_read(int number) const {
  const bool read = std::ranges::any_of(readers_[static_cast<size_t>(number)],
                                        [&](size_t reader) { return !fused_[reader]; });
  return read || is_output(number);
}

bool Lowering::has_reading_node(int number) const {
  return !readers_[static_cast<size_t>(number)].empty();
}

bool Lowering::has_reader(int number) const {
  return has_reading_node(number) || is_output(number);
}

bool Lowering::is_output(int number) const {
  return std::ranges::any_of(network_.outputs,
                             [&](int output) { return origin_of(output) == number; });
}

int Lowering::origin_of(int number) const { return origins_[static_cast<size_t>(number)]; }

TensorId Lowering::plain(int number) {
  number = origin_of(number);
  append_deferred(number);
  Layouts& layouts = layouts_[static_cast<size_t>(number)];
  if (layouts.plain != kNoTensor) return layouts.plain;
  const Value& known = value(number);
  const int rank = static_cast<int>(known.extents.size());
  if (layouts.transposed != kNoTensor)
    return layouts.plain = ops::transpose(
               builder_, known.name + ".transposed", layouts.transposed, layouts.permutation);
  if (layouts.channels_last != kNoTensor) {
    const std::string name = known.name + ".channels_first";
    layouts.plain =
        same_in_both_orders(known.extents)
            ? ops::reshape(builder_, name, layouts.channels_last, shape_of(known))
            : ops::transpose(builder_, name, layouts.channels_last, from_channels_last(rank));
    return layouts.plain;
  }
  const Source source = source_of(number);
  if (source.value >= 0) return layouts.plain = copy_of(source, known.name + ".copy");
  if (known.kind == ValueKind::kConstant) layouts.plain = make_constant(number);
  LOCKSTEP_CHECK(layouts.plain != kNoTensor, "value {} has no tensor ", known.name);
  return layouts.plain;
}

// Copies the parameter into an activation, from the storage that an earlier op chose.
TensorId Lowering::copy_of(Source source, const std::string& name) {
  const auto found = parameter_of_.find(source.value);
  const Storage storage =
      found == parameter_of_.end() ? Storage::kAsInFile : parameters_[found->second].storage;
  const TensorId stored = parameter(source.value, storage);
  if (storage == Storage::kKernel) {
    const Shape order = kernel_order(value(source.value));
    const TensorId kernel = builder_.shape(stored) == order
                                ? stored
                                : ops::reshape(builder_, name + ".kernel", stored, order);
    const bool deep = order.rank() == 5;
    return ops::transpose(
        builder_,
        name,
        kernel,
        deep ? std::vector<int>{0, 4, 3, 1, 2} : from_channels_last(order.rank()));
  }
  return (storage == Storage::kTransposed) != source.transposed
             ? ops::transpose(builder_, name, stored, {1, 0})
             : ops::copy_parameter(builder_, name, stored);
}

TensorId Lowering::channels_last(int number) {
  number = origin_of(number);
  append_deferred(number);
  Layouts& layouts = layouts_[static_cast<size_t>(number)];
  if (layouts.channels_last != kNoTensor) return layouts.channels_last;
  const Value& known = value(number);
  const TensorId tensor = plain(number);
  const std::string name = known.name + ".channels_last";
  layouts.channels_last =
      same_in_both_orders(known.extents)
          ? ops::reshape(builder_, name, tensor, channels_last_shape(known))
          : ops::transpose(builder_, name, tensor, to_channels_last(builder_.shape(tensor).rank()));
  return layouts.channels_last;
}

bool Lowering::is_channels_last(int number) const {
  if (const DeferredPointwise* pending = deferred(number)) return pending->channels_last;
  const Layouts& layouts = layouts_[static_cast<size_t>(origin_of(number))];
  return layouts.channels_last != kNoTensor && layouts.plain == kNoTensor;
}

void Lowering::set_transposed(int number, TensorId tensor, std::vector<int> permutation) {
  const auto rank = static_cast<int>(permutation.size());
  if (std::ranges::is_sorted(permutation)) return set(number, tensor);
  if (rank > 2 && permutation == from_channels_last(rank)) return set(number, tensor, true);
  layouts_[static_cast<size_t>(number)].transposed = tensor;
  layouts_[static_cast<size_t>(number)].permutation = std::move(permutation);
}

Lowering::Transposed Lowering::physical_layout(int number) {
  number = origin_of(number);
  append_deferred(number);
  const Layouts& layouts = layouts_[static_cast<size_t>(number)];
  const auto rank = static_cast<int>(value(number).extents.size());
  if (layouts.plain == kNoTensor && layouts.transposed != kNoTensor)
    return {layouts.transposed, layouts.permutation};
  if (layouts.plain == kNoTensor && layouts.channels_last != kNoTensor)
    return {layouts.channels_last, from_channels_last(rank)};
  std::vector<int> same(static_cast<size_t>(rank));
  std::iota(same.begin(), same.end(), 0);
  return {plain(number), std::move(same)};
}

Lowering::Matrices Lowering::matrices(int number) {
  const Transposed layout = physical_layout(number);
  if (layout.permutation == last_two_swapped(static_cast<int>(layout.permutation.size())))
    return {layout.tensor, true};
  return {plain(number), false};
}

void Lowering::defer(int number, DeferredPointwise what) { deferred_[number] = std::move(what); }

const DeferredPointwise* Lowering::deferred(int number) const {
  const auto found = deferred_.find(origin_of(number));
  return found == deferred_.end() ? nullptr : &found->second;
}

// Appends the deferred values that it reads first. This uses an explicit stack, because a chain of
// deferred values may be too long for recursion.
void Lowering::append_deferred(int number) {
  std::vector<int> waiting = {number};
  while (!waiting.empty()) {
    const int next = waiting.back();
    const auto found = deferred_.find(next);
    const size_t before = waiting.size();
    if (found != deferred_.end())
      std::ranges::copy_if(found->second.inputs | std::views::reverse,
                           std::back_inserter(waiting),
                           [&](int input) { return deferred_.contains(input); });
    if (waiting.size() > before) continue;
    waiting.pop_back();
    if (found == deferred_.end()) continue;
    const DeferredPointwise what = std::move(found->second);
    deferred_.erase(found);
    set(next, append_pointwise(*this, value(next), what), what.channels_last);
  }
}

void Lowering::set(int number, TensorId tensor, bool channels_last) {
  Layouts& layouts = layouts_[static_cast<size_t>(number)];
  (channels_last ? layouts.channels_last : layouts.plain) = tensor;
}

Lowering::Source Lowering::source_of(int number) const {
  return sources_[static_cast<size_t>(number)];
}

namespace {

// Initialises a parameter with the file's elements, which are read only when they are needed.
lockstep::Initializer given(const Value& value, Storage storage) {
  return {.kind = lockstep::Initializer::Kind::kGiven,
          .elements = [value, storage] { return elements_of(value, storage); }};
}

}  // namespace

bool Lowering::can_have(int number, Storage storage) const {
  const auto found = parameter_of_.find(number);
  return found == parameter_of_.end() ||
         (parameters_[found->second].storage == storage && unshared_.count(number) == 0);
}

TensorId Lowering::parameter(int number, Storage storage) {
  const Value& origin = value(number);
  if (!can_have(number, storage))
    throw ConfigError("parameter \"{}\": the nodes that use it need different layouts of it",
                      origin.name);
  const auto found = parameter_of_.find(number);
  if (found != parameter_of_.end()) return parameters_[found->second].tensor;
  const bool decays = origin.extents.size() > 1;
  const TensorId tensor = builder_.parameter(
      origin.name, stored_shape(origin, storage), given(origin, storage), decays);
  parameter_of_[number] = parameters_.size();
  parameters_.push_back({tensor, number, storage});
  return tensor;
}

TensorId Lowering::unshared_parameter(int number) {
  unshared_.insert(number);
  return parameter(number);
}

TensorId Lowering::running_statistic(const Node& node, int number, float momentum) {
  const Value& origin = value(number);
  if (origin.kind == ValueKind::kComputed || origin.kind == ValueKind::kInput)
    refuse(node, fmt::format("\"{}\" is computed; must be a constant of the file", origin.name));
  if (parameter_of_.count(number) > 0)
    refuse(node,
           fmt::format(
               "shares the statistic \"{}\" with another node. Exporters merge statistics that "
               "start out equal; export with torch.onnx.export(..., dynamo=True, "
               "optimize=False)",
               origin.name));
  const TensorId tensor = builder_.running_statistic(origin.name, shape_of(origin), 0, momentum);
  builder_[tensor].initializer = given(origin, Storage::kAsInFile);
  parameter_of_[number] = parameters_.size();
  parameters_.push_back({tensor, number, Storage::kAsInFile});
  return tensor;
}

float Lowering::storable(float number) const {
  const DType compute = builder_.options().compute;
  const float lowest = compute == DType::kBF16  ? -0x1.FEp127f
                       : compute == DType::kF16 ? -65504.0f
                                                : std::numeric_limits<float>::lowest();
  return number < lowest && std::isfinite(number) ? lowest / 2 : number;
}

void Lowering::require_fp32(const Node& node) {
  constexpr const char* kReason = "computes with integers, which only FP32 holds exactly";
  if (builder_.options().compute != DType::kF32)
    refuse(node, fmt::format("{}; set execution.precision: FP32", kReason));
  if (reason_for_fp32_.empty())
    reason_for_fp32_ = fmt::format("{} {}", node.description(), kReason);
}

TensorId Lowering::make_constant(int number) {
  const Value& known = value(number);
  if (!is_integer(known.type)) {
    std::vector<float> elements = known.array.as_float();
    for (float& element : elements) element = storable(element);
    return builder_.constant(known.name, shape_of(known), elements);
  }
  std::vector<int32_t> integers;
  for (const int64_t element : known.array.as_int64())
    integers.push_back(static_cast<int32_t>(std::clamp<int64_t>(element, INT32_MIN, INT32_MAX)));
  return builder_.constant(known.name, shape_of(known), integers);
}

void Lowering::set_token_masks(std::vector<int> masks, TensorId documents, const Network& probe) {
  token_masks_.emplace(probe);
  token_masks_->set_masks(std::move(masks));
  documents_ = documents;
}

// Documents are not separated: a mask of tokens hides padding from all tokens, and nothing else.
TensorId Lowering::seen_tokens() {
  if (seen_tokens_ != kNoTensor) return seen_tokens_;
  PointwiseProgram program;
  const int zero = program.constant(0);
  program.append(PointwiseFunction::kMin, program.input(0), zero);
  return seen_tokens_ =
             ops::pointwise(builder_, "seen_tokens", {documents_}, program, /*integers=*/true);
}

std::vector<const Node*> Lowering::readers(int number) const {
  std::vector<const Node*> nodes;
  for (const size_t reader : readers_[static_cast<size_t>(origin_of(number))])
    nodes.push_back(&network_.nodes[reader]);
  return nodes;
}

const Node* Lowering::only_reader(int number) const {
  number = origin_of(number);
  const std::vector<size_t>& readers = readers_[static_cast<size_t>(number)];
  return readers.size() == 1 && !is_output(number) ? &network_.nodes[readers[0]] : nullptr;
}

const Node* Lowering::producer(int number) const {
  const int node = producers_[static_cast<size_t>(number)];
  return node < 0 ? nullptr : &network_.nodes[static_cast<size_t>(node)];
}

void Lowering::mark_fused(const Node& node) {
  fused_[static_cast<size_t>(&node - network_.nodes.data())] = true;
}

void Lowering::lower_unfused(const std::vector<const Node*>& nodes) {
  const auto index = [&](const Node* node) {
    return static_cast<size_t>(node - network_.nodes.data());
  };
  for (const Node* node : nodes) fused_[index(node)] = false;
  for (const Node* node : nodes) lower_node(index(node));
}

void Lowering::replace(const Node& node, Replacement replacement) {
  replacements_[static_cast<size_t>(&node - network_.nodes.data())] = std::move(replacement);
}

std::string Lowering::name_of(const Node& node) const {
  return node.name.empty() && node.output(0) >= 0 ? value(node.output(0)).name : node.name;
}

}  // namespace lockstep::onnx
