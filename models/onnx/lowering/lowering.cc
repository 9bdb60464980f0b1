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

// (N, C, ...) to (N, ..., C).
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

// Types of floats are all one here, and counts and ids are.
bool is_copy(const Node& node, const Value& from, const Value& to) {
  if (!node.domain.empty()) return false;
  if (node.op == "Reshape" || node.op == "Expand" || node.op == "Flatten")
    return from.extents == to.extents && from.type == to.type;
  return node.op == "Identity" || ((node.op == "Cast" || node.op == "CastLike") &&
                                   is_floating(from.type) == is_floating(to.type) &&
                                   is_whole(from.type) == is_whole(to.type));
}

// A copy through which no gradient comes back.
bool stops_gradient(const Node& node, const Value& to) {
  return node.detached && is_floating(to.type);
}

bool is_plain_transpose(const Node& node, size_t rank) {
  return node.op == "Transpose" && rank == 2 &&
         node.integers("perm", {1, 0}) == std::vector<int64_t>{1, 0};
}

// Whether (N, C, ...) and (N, ..., C) have their elements in one order.
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
      places_(network.values.size()),
      sources_(network.values.size()),
      origins_(network.values.size()),
      readers_(network.values.size()),
      producers_(network.values.size(), -1),
      learns_(network.values.size(), false),
      passed_over_(network.nodes.size(), false),
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

// Where the node's outputs come from.
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
  return passed_over_[number] ||
         (output >= 0 && (origin_of(output) != output || source_of(output).value >= 0));
}

// A node that there is no op for, with those behind it of which this is true, too.
void Lowering::refuse_op(size_t number) const {
  std::map<std::string, int> others;
  for (size_t i = number + 1; i < network_.nodes.size(); ++i) {
    const Node& node = network_.nodes[i];
    if (!is_done(i) && lower_of(node) == nullptr)
      ++others[node.domain.empty() ? node.op : node.domain + "." + node.op];
  }
  std::string text;
  for (const auto& [op, count] : others)
    text += fmt::format("{}{} {}", text.empty() ? "; nor for " : ", ", count, op);
  refuse(network_.nodes[number], "cannot be trained: there is no such op here" + text);
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

bool Lowering::lower_ahead(int number, const Node& node) {
  std::set<size_t> needed;
  std::vector<int> values = {number};
  while (!values.empty()) {
    const int producer = producers_[static_cast<size_t>(values.back())];
    values.pop_back();
    if (producer < 0) continue;
    const auto place = static_cast<size_t>(producer);
    const Node& found = network_.nodes[place];
    if (&found == &node) return false;
    if (lowered_[place] || !needed.insert(place).second) continue;
    for (const int input : found.inputs)
      if (input >= 0) values.push_back(input);
  }
  for (const size_t place : needed) lower_node(place);
  return true;
}

void Lowering::require_outputs(const Node& node) const {
  for (const int output : node.outputs) {
    if (output < 0) continue;
    const Place& place = places_[static_cast<size_t>(output)];
    if (place.is_set() || deferred(output) != nullptr) continue;
    if (is_read(output))
      refuse(node, fmt::format("its output \"{}\" is not known here", value(output).name));
  }
}

bool Lowering::is_read(int number) const {
  const bool read = std::ranges::any_of(readers_[static_cast<size_t>(number)],
                                        [&](size_t reader) { return !passed_over_[reader]; });
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
  Place& place = places_[static_cast<size_t>(number)];
  if (place.plain != kNoTensor) return place.plain;
  const Value& known = value(number);
  const int rank = static_cast<int>(known.extents.size());
  if (place.transposed != kNoTensor)
    return place.plain = ops::transpose(
               builder_, known.name + ".transposed", place.transposed, place.permutation);
  if (place.channels_last != kNoTensor) {
    const std::string name = known.name + ".channels_first";
    place.plain =
        same_in_both_orders(known.extents)
            ? ops::reshape(builder_, name, place.channels_last, shape_of(known))
            : ops::transpose(builder_, name, place.channels_last, from_channels_last(rank));
    return place.plain;
  }
  const Source source = source_of(number);
  if (source.value >= 0) return place.plain = copy_of(source, known.name + ".copy");
  if (known.kind == ValueKind::kConstant) place.plain = make_constant(number);
  LOCKSTEP_CHECK(place.plain != kNoTensor, "value {} has no tensor ", known.name);
  return place.plain;
}

// From however an op before has wanted the parameter.
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
  Place& place = places_[static_cast<size_t>(number)];
  if (place.channels_last != kNoTensor) return place.channels_last;
  const Value& known = value(number);
  const TensorId tensor = plain(number);
  const std::string name = known.name + ".channels_last";
  place.channels_last =
      same_in_both_orders(known.extents)
          ? ops::reshape(builder_, name, tensor, channels_last_shape(known))
          : ops::transpose(builder_, name, tensor, to_channels_last(builder_.shape(tensor).rank()));
  return place.channels_last;
}

bool Lowering::is_channels_last(int number) const {
  if (const DeferredPointwise* waits = deferred(number)) return waits->channels_last;
  const Place& place = places_[static_cast<size_t>(origin_of(number))];
  return place.channels_last != kNoTensor && place.plain == kNoTensor;
}

void Lowering::set_transposed(int number, TensorId tensor, std::vector<int> permutation) {
  const auto rank = static_cast<int>(permutation.size());
  if (std::ranges::is_sorted(permutation)) return set(number, tensor);
  if (rank > 2 && permutation == from_channels_last(rank)) return set(number, tensor, true);
  places_[static_cast<size_t>(number)].transposed = tensor;
  places_[static_cast<size_t>(number)].permutation = std::move(permutation);
}

Lowering::Transposed Lowering::as_it_lies(int number) {
  number = origin_of(number);
  append_deferred(number);
  const Place& place = places_[static_cast<size_t>(number)];
  const auto rank = static_cast<int>(value(number).extents.size());
  if (place.plain == kNoTensor && place.transposed != kNoTensor)
    return {place.transposed, place.permutation};
  if (place.plain == kNoTensor && place.channels_last != kNoTensor)
    return {place.channels_last, from_channels_last(rank)};
  std::vector<int> same(static_cast<size_t>(rank));
  std::iota(same.begin(), same.end(), 0);
  return {plain(number), std::move(same)};
}

Lowering::Matrices Lowering::matrices(int number) {
  const Transposed lies = as_it_lies(number);
  if (lies.permutation == last_two_swapped(static_cast<int>(lies.permutation.size())))
    return {lies.tensor, true};
  return {plain(number), false};
}

void Lowering::defer(int number, DeferredPointwise what) { deferred_[number] = std::move(what); }

const DeferredPointwise* Lowering::deferred(int number) const {
  const auto found = deferred_.find(origin_of(number));
  return found == deferred_.end() ? nullptr : &found->second;
}

// Those that it reads go first: a chain of them may be longer than the stack is deep.
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
  Place& place = places_[static_cast<size_t>(number)];
  (channels_last ? place.channels_last : place.plain) = tensor;
}

Lowering::Source Lowering::source_of(int number) const {
  return sources_[static_cast<size_t>(number)];
}

namespace {

// The elements of the file, which are read when they are wanted.
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
    throw ConfigError("parameter \"{}\": is used by several nodes, which cannot share it here",
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
    refuse(
        node,
        fmt::format("shares the statistic \"{}\" with another node, as exporters let it where both "
                    "are equal at first; export with torch.onnx.export(..., dynamo=True, "
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

TensorId Lowering::make_constant(int number) {
  const Value& known = value(number);
  if (!is_whole(known.type)) {
    std::vector<float> elements = known.array.as_float();
    for (float& element : elements) element = storable(element);
    return builder_.constant(known.name, shape_of(known), elements);
  }
  std::vector<int32_t> integers;
  for (const int64_t element : known.array.as_int64())
    integers.push_back(static_cast<int32_t>(std::clamp<int64_t>(element, INT32_MIN, INT32_MAX)));
  return builder_.constant(known.name, shape_of(known), integers);
}

void Lowering::set_token_masks(std::vector<int> masks, TensorId documents, const Network& few) {
  token_masks_.emplace(few);
  token_masks_->set_masks(std::move(masks));
  documents_ = documents;
}

// What a mask of tokens hides, it hides from every document.
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

void Lowering::pass_over(const Node& node) {
  passed_over_[static_cast<size_t>(&node - network_.nodes.data())] = true;
}

void Lowering::lower_passed_over(const std::vector<const Node*>& nodes) {
  const auto place = [&](const Node* node) {
    return static_cast<size_t>(node - network_.nodes.data());
  };
  for (const Node* node : nodes) passed_over_[place(node)] = false;
  for (const Node* node : nodes) lower_node(place(node));
}

void Lowering::replace(const Node& node, Replacement replacement) {
  replacements_[static_cast<size_t>(&node - network_.nodes.data())] = std::move(replacement);
}

std::string Lowering::name_of(const Node& node) const {
  return node.name.empty() && node.output(0) >= 0 ? value(node.output(0)).name : node.name;
}

}  // namespace lockstep::onnx
