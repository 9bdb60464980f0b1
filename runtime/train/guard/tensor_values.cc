#include "runtime/train/guard/tensor_values.h"

#include <algorithm>
#include <cmath>

namespace lockstep::train {
namespace {

constexpr size_t kElementsBytes = size_t{1} << 16;

bool is_floating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 ||
         dtype == DType::kF64;
}

}  // namespace

TensorValues::TensorValues(exec::Backend& backend)
    : backend_(backend),
      hash_(backend.host_array<ContentHash>(1)),
      elements_(backend.host_array<std::byte>(kElementsBytes)) {}

bool TensorValues::all_finite(const std::byte* data, DType dtype, int64_t elements) {
  if (dtype == DType::kF64) return false;  // statistics, which are few
  backend_.hash(data, dtype, elements, 0, hash_.data());
  backend_.synchronize();
  return hash_[0].not_finite == 0;
}

void TensorValues::visit(const graph::Tensor& tensor,
                         const std::byte* data,
                         bool only_not_finite,
                         const Visit& f) {
  const DType dtype = tensor.dtype;
  if (!is_floating(dtype)) return;
  const int64_t rows = tensor.padded_columns > 0 ? tensor.shape.rows() : 1;
  const int64_t elements = tensor.shape.elements() / std::max<int64_t>(rows, 1);
  const auto size = static_cast<int64_t>(size_of(dtype));
  for (int64_t row = 0; row < rows; ++row) {  // padding may hold anything
    const std::byte* const at = data + row * tensor.padded_columns * size;
    if (only_not_finite && all_finite(at, dtype, elements)) continue;
    for (int64_t begin = 0; begin < elements;) {
      const int64_t count = std::min(static_cast<int64_t>(kElementsBytes) / size, elements - begin);
      const auto bytes = static_cast<size_t>(count * size);
      backend_.copy(at + begin * size, elements_.data(), bytes);
      backend_.synchronize();
      f(row * elements + begin, elements_.first(bytes));
      begin += count;
    }
  }
}

NotFiniteKinds TensorValues::kinds_in(const graph::Tensor& tensor, const std::byte* data) {
  NotFiniteKinds kinds;
  visit(tensor, data, true, [&](int64_t, std::span<const std::byte> elements) {
    kinds.add(kinds_of(elements, tensor.dtype));
  });
  return kinds;
}

float TensorValues::largest_in(const graph::Tensor& tensor, const std::byte* data) {
  float largest = 0;
  if (tensor.dtype == DType::kF64) return largest;
  visit(tensor, data, false, [&](int64_t, std::span<const std::byte> elements) {
    for_each_number(elements, tensor.dtype, [&](double x) {
      if (std::isfinite(x)) largest = std::max(largest, static_cast<float>(std::abs(x)));
    });
  });
  return largest;
}

std::vector<int64_t> TensorValues::parts_not_finite(const graph::Tensor& tensor,
                                                    const std::byte* data,
                                                    int64_t parts) {
  std::vector<int64_t> found;
  const int64_t part = tensor.shape.elements() / parts;
  visit(tensor, data, true, [&](int64_t at, std::span<const std::byte> elements) {
    for_each_number(elements, tensor.dtype, [&](double x) {
      const int64_t of = at++ / part;
      if (!std::isfinite(x) && (found.empty() || found.back() != of)) found.push_back(of);
    });
  });
  return found;
}

}  // namespace lockstep::train
