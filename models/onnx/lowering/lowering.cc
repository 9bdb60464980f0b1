#include "models/onnx/lowering/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "runtime/base/error.h"
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

// Types of floats are all one here, and counts and ids are.
bool is_copy(const Node& node, const Value& from, const Value& to) {
  if (!node.domain.empty()) return false;
  return node.op == "Identity" || ((node.op == "Cast" || node.op == "CastLike") &&
                                   is_floating(from.type) == is_floating(to.type));
}

bool is_plain_transpose(const Node& node, size_t rank) {
  return node.op == "Transpose" && rank == 2 &&
         node.integers("perm", {1, 0}) == std::vector<int64_t>{1, 0};
}

// Elements (rows, columns) as (columns, rows), of `outer` matrices.
std::vector<float> transposed(const std::vector<float>& from,
                              int64_t outer,
                              int64_t rows,
                              int64_t columns) {
  std::vector<float> to(from.size());
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        to[static_cast<size_t>((o * columns + c) * rows + r)] =
            from[static_cast<size_t>((o * rows + r) * columns + c)];
  return to;
}

Shape stored_shape(const Value& value, Storage storage) {
  const Shape shape = shape_of(value);
  if (storage == Storage::kTransposed) return {shape[1], shape[0]};
  if (storage == Storage::kAsInFile) return shape;
  Shape last;
  for (const int dimension : to_channels_last(shape.rank())) last.append(shape[dimension]);
  return last;
}

template <typename T>
std::shared_ptr<const std::vector<std::byte>> bytes_of(const std::vector<T>& elements) {
  std::vector<std::byte> bytes(elements.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), elements.data(), bytes.size());
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

}  // namespace

void refuse(const Node& node, const std::string& what) {
  throw ConfigError("{}: {}", node.description(), what);
}

Shape shape_of(const Value& value) {
  if (value.extents.size() > Shape::kMaxRank)
    throw ConfigError("value \"{}\": has {} axes; allowed: at most {}",
                      value.name,
                      value.extents.size(),
                      Shape::kMaxRank);
  Shape shape;
  for (const int64_t extent : value.extents) shape.append(extent);
  return shape;
}

std::vector<float> elements_of(const Value& value, Storage storage) {
  std::vector<float> elements = value.array.as_float();
  const Shape shape = shape_of(value);
  if (storage == Storage::kTransposed) return transposed(elements, 1, shape[0], shape[1]);
  if (storage == Storage::kChannelsLast)
    return transposed(
        elements, shape[0], shape[1], shape.elements() / std::max<int64_t>(1, shape[0] * shape[1]));
  return elements;
}

std::vector<double> elements_in_file(const Value& value, Storage storage, const float* parameter) {
  const Shape shape = shape_of(value);
  std::vector<float> elements(parameter, parameter + shape.elements());
  if (storage == Storage::kTransposed) elements = transposed(elements, 1, shape[1], shape[0]);
  if (storage == Storage::kChannelsLast)
    elements = transposed(
        elements, shape[0], shape.elements() / std::max<int64_t>(1, shape[0] * shape[1]), shape[1]);
  return {elements.begin(), elements.end()};
}

Lowering::Lowering(const Network& network, GraphBuilder& builder)
    : network_(network),
      builder_(builder),
      places_(network.values.size()),
      sources_(network.values.size()),
      origins_(network.values.size()),
      readers_(network.values.size()),
      passed_over_(network.nodes.size(), false) {
  std::iota(origins_.begin(), origins_.end(), 0);
  for (size_t i = 0; i < network.values.size(); ++i) {
    if (network.values[i].kind == ValueKind::kParameter) sources_[i] = {static_cast<int>(i), false};
  }
  for (size_t i = 0; i < network.nodes.size(); ++i) {
    const Node& node = network.nodes[i];
    for (const int input : node.inputs)
      if (input >= 0) readers_[static_cast<size_t>(input)].push_back(i);
    if (node.input(0) < 0 || node.output(0) < 0) continue;
    const auto output = static_cast<size_t>(node.output(0));
    const Source source = source_of(node.input(0));
    if (is_copy(node, value(node.input(0)), value(node.output(0)))) {
      sources_[output] = source;
      origins_[output] = origin_of(node.input(0));
    } else if (source.value >= 0 && is_plain_transpose(node, value(source.value).extents.size())) {
      sources_[output] = {source.value, !source.transposed};
    }
  }
}

void Lowering::give(int number, TensorId tensor, bool channels_last) {
  set(number, tensor, channels_last);
}

void Lowering::run() {
  for (size_t i = 0; i < network_.nodes.size(); ++i) {
    const Node& node = network_.nodes[i];
    const bool copies = origin_of(node.output(0)) != node.output(0);
    if (passed_over_[i] || copies || source_of(node.output(0)).value >= 0) continue;
    const LowerNode lower = node.domain.empty() ? lower_of(node.op) : nullptr;
    if (lower == nullptr) refuse(node, "cannot be trained: there is no such op here");
    lower(*this, node);
  }
}

int Lowering::origin_of(int number) const { return origins_[static_cast<size_t>(number)]; }

TensorId Lowering::plain(int number) {
  number = origin_of(number);
  Place& place = places_[static_cast<size_t>(number)];
  if (place.plain != kNoTensor) return place.plain;
  const Value& known = value(number);
  if (place.channels_last != kNoTensor) {
    const int rank = static_cast<int>(known.extents.size());
    place.plain = ops::transpose(
        builder_, known.name + ".channels_first", place.channels_last, from_channels_last(rank));
    return place.plain;
  }
  const Source source = source_of(number);
  if (source.value >= 0) {
    const Value& origin = value(source.value);
    const Node* reader = nullptr;
    for (const size_t i : readers_[static_cast<size_t>(number)]) reader = &network_.nodes[i];
    const Node none;
    const TensorId stored =
        parameter(reader != nullptr ? *reader : none, source.value, Storage::kAsInFile);
    place.plain = source.transposed ? ops::transpose(builder_, known.name, stored, {1, 0})
                                    : ops::copy_parameter(builder_, origin.name + ".copy", stored);
    return place.plain;
  }
  if (known.kind == ValueKind::kConstant) place.plain = make_constant(number);
  LOCKSTEP_CHECK(place.plain != kNoTensor, "value {} has no tensor ", known.name);
  return place.plain;
}

TensorId Lowering::channels_last(int number) {
  number = origin_of(number);
  Place& place = places_[static_cast<size_t>(number)];
  if (place.channels_last != kNoTensor) return place.channels_last;
  const TensorId tensor = plain(number);
  const int rank = builder_.shape(tensor).rank();
  places_[static_cast<size_t>(number)].channels_last = ops::transpose(
      builder_, value(number).name + ".channels_last", tensor, to_channels_last(rank));
  return places_[static_cast<size_t>(number)].channels_last;
}

bool Lowering::is_channels_last(int number) const {
  const Place& place = places_[static_cast<size_t>(origin_of(number))];
  return place.channels_last != kNoTensor && place.plain == kNoTensor;
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

TensorId Lowering::parameter(const Node& node, int number, Storage storage) {
  const auto found = parameter_of_.find(number);
  if (found != parameter_of_.end()) {
    const LoweredParameter& known = parameters_[found->second];
    if (known.storage != storage)
      refuse(node,
             fmt::format("uses \"{}\" in another way than a node before it does; give each its own",
                         value(number).name));
    return known.tensor;
  }
  const Value& origin = value(number);
  const bool decays = origin.extents.size() > 1;
  const TensorId tensor = builder_.parameter(
      origin.name, stored_shape(origin, storage), given(origin, storage), decays);
  parameter_of_[number] = parameters_.size();
  parameters_.push_back({tensor, number, storage});
  return tensor;
}

TensorId Lowering::running_statistic(const Node& node, int number, float momentum) {
  const Value& origin = value(number);
  if (origin.kind == ValueKind::kComputed || origin.kind == ValueKind::kInput)
    refuse(node, fmt::format("\"{}\" is computed; must be a constant of the file", origin.name));
  if (parameter_of_.count(number) > 0)
    refuse(node, fmt::format("shares the statistic \"{}\" with another node", origin.name));
  const TensorId tensor = builder_.running_statistic(origin.name, shape_of(origin), 0, momentum);
  builder_[tensor].initializer = given(origin, Storage::kAsInFile);
  parameter_of_[number] = parameters_.size();
  parameters_.push_back({tensor, number, Storage::kAsInFile});
  return tensor;
}

TensorId Lowering::make_constant(int number) {
  const Value& known = value(number);
  const Shape shape = shape_of(known);
  if (is_floating(known.type))
    return builder_.constant(known.name, shape, DType::kF32, bytes_of(known.array.as_float()));
  std::vector<int32_t> integers;
  for (const int64_t element : known.array.as_int64())
    integers.push_back(static_cast<int32_t>(std::clamp<int64_t>(element, INT32_MIN, INT32_MAX)));
  return builder_.constant(known.name, shape, DType::kI32, bytes_of(integers));
}

const Node* Lowering::only_reader(int number) const {
  const std::vector<size_t>& readers = readers_[static_cast<size_t>(number)];
  const bool kept = std::ranges::count(network_.outputs, number) > 0;
  return readers.size() == 1 && !kept ? &network_.nodes[readers[0]] : nullptr;
}

void Lowering::pass_over(const Node& node) {
  passed_over_[static_cast<size_t>(&node - network_.nodes.data())] = true;
}

std::string Lowering::name_of(const Node& node) const {
  return node.name.empty() ? value(node.output(0)).name : node.name;
}

}  // namespace lockstep::onnx
