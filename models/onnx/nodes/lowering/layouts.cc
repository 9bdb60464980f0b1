#include "models/onnx/nodes/lowering/layouts.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <ranges>

#include "models/onnx/nodes/lowering/pointwise.h"
#include "runtime/base/error.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

std::vector<int> same_order(int rank) { return numbers_from<int>(static_cast<size_t>(rank)); }

// The permutation from (N, C, ...) to (N, ..., C).
std::vector<int> to_channels_last(int rank) {
  std::vector<int> permutation = same_order(rank);
  std::rotate(permutation.begin() + 1, permutation.begin() + 2, permutation.end());
  return permutation;
}

std::vector<int> last_two_swapped(int rank) {
  std::vector<int> permutation = same_order(rank);
  std::swap(permutation[permutation.size() - 1], permutation[permutation.size() - 2]);
  return permutation;
}

// Whether (N, C, ...) and (N, ..., C) have their elements in the same order.
bool same_in_both_orders(const Extents& extents) {
  return extents[1] == 1 || elements({extents.begin() + 2, extents.end()}) == 1;
}

}  // namespace

TensorId shaped(graph::GraphBuilder& builder,
                const std::string& name,
                TensorId x,
                const Shape& shape) {
  return builder.shape(x) == shape ? x : ops::reshape(builder, name, x, shape);
}

std::vector<int> from_channels_last(int rank) {
  std::vector<int> permutation = same_order(rank);
  std::rotate(permutation.begin() + 1, permutation.end() - 1, permutation.end());
  return permutation;
}

Shape channels_last_shape(const Extents& extents, size_t rank) {
  std::vector<int64_t> extended(rank - extents.size(), 1);
  extended.insert(extended.end(), extents.begin(), extents.end());
  std::rotate(extended.begin() + 1, extended.begin() + 2, extended.end());
  Shape shape;
  for (const int64_t extent : extended) shape.append(extent);
  return shape;
}

float storable(float number, DType compute) {
  const float lowest = compute == DType::kBF16  ? -0x1.FEp127f
                       : compute == DType::kF16 ? -65504.0f
                                                : std::numeric_limits<float>::lowest();
  return number < lowest && std::isfinite(number) ? lowest / 2 : number;
}

Layouts::Layouts(const Readers& readers, Parameters& parameters, graph::GraphBuilder& builder)
    : readers_(readers),
      parameters_(parameters),
      builder_(builder),
      tensors_(readers.network().values.size()) {}

TensorId Layouts::plain(int number) {
  number = readers_.origin_of(number);
  append_deferred(number);
  Tensors& tensors = of(number);
  if (tensors.plain != kNoTensor) return tensors.plain;
  const Value& known = readers_.value(number);
  const int rank = static_cast<int>(known.extents.size());
  if (tensors.transposed != kNoTensor)
    return tensors.plain = ops::transpose(
               builder_, known.name + ".transposed", tensors.transposed, tensors.permutation);
  if (tensors.channels_last != kNoTensor) {
    const std::string name = known.name + ".channels_first";
    tensors.plain =
        same_in_both_orders(known.extents)
            ? ops::reshape(builder_, name, tensors.channels_last, shape_of(known))
            : ops::transpose(builder_, name, tensors.channels_last, from_channels_last(rank));
    return tensors.plain;
  }
  const ParameterSource source = readers_.source_of(number);
  if (source.value >= 0) return tensors.plain = parameters_.copy_of(source, known.name + ".copy");
  if (known.kind == ValueKind::kConstant) tensors.plain = make_constant(known);
  LOCKSTEP_CHECK(tensors.plain != kNoTensor, "value {} has no tensor ", known.name);
  return tensors.plain;
}

TensorId Layouts::channels_last(int number) {
  number = readers_.origin_of(number);
  append_deferred(number);
  Tensors& tensors = of(number);
  if (tensors.channels_last != kNoTensor) return tensors.channels_last;
  const Value& known = readers_.value(number);
  const TensorId tensor = plain(number);
  const std::string name = known.name + ".channels_last";
  tensors.channels_last =
      same_in_both_orders(known.extents)
          ? ops::reshape(
                builder_, name, tensor, channels_last_shape(known.extents, known.extents.size()))
          : ops::transpose(builder_, name, tensor, to_channels_last(builder_.shape(tensor).rank()));
  return tensors.channels_last;
}

bool Layouts::is_channels_last(int number) const {
  if (const DeferredPointwise* pending = deferred(number)) return pending->channels_last;
  const Tensors& tensors = tensors_[static_cast<size_t>(readers_.origin_of(number))];
  return tensors.channels_last != kNoTensor && tensors.plain == kNoTensor;
}

void Layouts::set(int number, TensorId tensor, bool channels_last) {
  (channels_last ? of(number).channels_last : of(number).plain) = tensor;
}

void Layouts::set_transposed(int number, TensorId tensor, std::vector<int> permutation) {
  const auto rank = static_cast<int>(permutation.size());
  if (std::ranges::is_sorted(permutation)) return set(number, tensor);
  if (rank > 2 && permutation == from_channels_last(rank)) return set(number, tensor, true);
  of(number).transposed = tensor;
  of(number).permutation = std::move(permutation);
}

bool Layouts::is_set(int number) const {
  const Tensors& tensors = tensors_[static_cast<size_t>(number)];
  return tensors.plain != kNoTensor || tensors.channels_last != kNoTensor ||
         tensors.transposed != kNoTensor || deferred(number) != nullptr;
}

Layouts::Transposed Layouts::physical_layout(int number) {
  number = readers_.origin_of(number);
  append_deferred(number);
  const Tensors& tensors = of(number);
  const auto rank = static_cast<int>(readers_.value(number).extents.size());
  if (tensors.plain == kNoTensor && tensors.transposed != kNoTensor)
    return {tensors.transposed, tensors.permutation};
  if (tensors.plain == kNoTensor && tensors.channels_last != kNoTensor)
    return {tensors.channels_last, from_channels_last(rank)};
  return {plain(number), same_order(rank)};
}

Layouts::Matrices Layouts::matrices(int number) {
  const Transposed layout = physical_layout(number);
  if (layout.permutation == last_two_swapped(static_cast<int>(layout.permutation.size())))
    return {layout.tensor, true};
  return {plain(number), false};
}

const DeferredPointwise* Layouts::deferred(int number) const {
  const auto found = deferred_.find(readers_.origin_of(number));
  return found == deferred_.end() ? nullptr : &found->second;
}

// Appends the deferred values that it reads first. This uses an explicit stack, because a chain of
// deferred values may be too long for recursion.
void Layouts::append_deferred(int number) {
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
    set(next, append_pointwise(builder_, readers_, *this, next, what), what.channels_last);
  }
}

TensorId Layouts::make_constant(const Value& known) {
  if (!is_integer(known.type)) {
    std::vector<float> elements = known.array.as_float();
    for (float& element : elements) element = storable(element, builder_.options().compute);
    return builder_.constant(known.name, shape_of(known), elements);
  }
  std::vector<int32_t> integers;
  for (const int64_t element : known.array.as_int64())
    integers.push_back(static_cast<int32_t>(std::clamp<int64_t>(element, INT32_MIN, INT32_MAX)));
  return builder_.constant(known.name, shape_of(known), integers);
}

}  // namespace lockstep::onnx
