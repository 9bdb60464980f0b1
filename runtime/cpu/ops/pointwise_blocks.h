#pragma once
// The blocks in which the CPU computes pointwise ops, and their broadcast inputs. Elements are only
// copied here, so nothing depends on the instruction set.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "runtime/base/half.h"
#include "runtime/graph/ops/pointwise.h"

namespace lockstep::cpu {

// The values of a block: element i is at[i & mask]. The mask is all ones, or 0 if the same 16
// values are used throughout.
struct PointwiseOperand {
  const float* at;
  size_t mask;
};

// Elements [first, first + n) of y: either complete rows from `row` on (a row is the innermost
// loop), or, in a long row, elements from `column` on.
struct PointwiseBlock {
  int64_t first, n, row, column;
};

class PointwiseBlocks {
 public:
  static constexpr int64_t kElements = 512;

  PointwiseBlocks(const graph::PointwiseLoops& loops, int64_t n)
      : row_length_(loops.extents[loops.rank - 1]),
        rows_(row_length_ == 0 ? 0 : n / row_length_),
        rows_each_(std::max<int64_t>(1, kElements / std::max<int64_t>(1, row_length_))),
        parts_((row_length_ + kElements - 1) / kElements) {}

  int64_t row_length() const { return row_length_; }
  int64_t rows_each() const { return rows_each_; }
  int64_t count() const {
    return rows_each_ > 1 ? (rows_ + rows_each_ - 1) / rows_each_ : rows_ * parts_;
  }
  PointwiseBlock at(int64_t number) const {
    if (rows_each_ > 1) {
      const int64_t row = number * rows_each_;
      return {row * row_length_, std::min(rows_each_, rows_ - row) * row_length_, row, 0};
    }
    const int64_t row = number / parts_, column = number % parts_ * kElements;
    return {row * row_length_ + column, std::min(kElements, row_length_ - column), row, column};
  }

 private:
  int64_t row_length_, rows_, rows_each_, parts_;
};

// The inputs of consecutive blocks. Floats with y's layout are read in place, other inputs are
// copied as floats.
// Inputs that are the same for all blocks are copied once.
class PointwiseInputs {
 public:
  PointwiseInputs(const graph::PointwiseForward<float>& op, const PointwiseBlocks& blocks)
      : op_(op), blocks_(blocks), inner_(op.loops.rank - 1) {
    for (int k = 0; k < op.code->inputs; ++k) kinds_[k] = kind_of(k);
  }

  void enter(const PointwiseBlock& block, PointwiseOperand* values) {
    for (int k = 0; k < op_.code->inputs; ++k) {
      switch (kinds_[k]) {
        case Kind::kScalar: values[k] = {entered_ ? values_[k] : splat(k, 0), 0}; break;
        case Kind::kDense: values[k] = {run(k, block.first, block.n), ~size_t{0}}; break;
        case Kind::kRow:  // the same row repeatedly; the first block has the most copies
          if (!entered_ || blocks_.rows_each() == 1) copy_rows(k, block);
          values[k] = {rows_at_[k], ~size_t{0}};
          break;
        case Kind::kStrided: values[k] = strided(k, block); break;
      }
    }
    entered_ = true;
  }

 private:
  enum class Kind { kScalar, kDense, kRow, kStrided };

  Kind kind_of(int k) const {
    const graph::PointwiseLoops& loops = op_.loops;
    bool none = true, outer_none = true, all = true;
    int64_t dense_stride = 1;
    for (int d = inner_; d >= 0; --d) {
      none &= loops.strides[k][d] == 0;
      outer_none &= d == inner_ || loops.strides[k][d] == 0;
      all &= loops.strides[k][d] == dense_stride;
      dense_stride *= loops.extents[d];
    }
    if (none) return Kind::kScalar;
    if (all) return Kind::kDense;
    return outer_none ? Kind::kRow : Kind::kStrided;
  }

  // Offset in input `k` of the element that the first element of a row of y reads.
  int64_t begin_of(int k, int64_t row) const {
    const int64_t* strides = op_.loops.strides[k];
    int64_t offset = 0;
    for (int d = inner_ - 1; d > 0; --d) {
      const int64_t outer = row / op_.loops.extents[d];
      offset += (row - outer * op_.loops.extents[d]) * strides[d];
      row = outer;
    }
    return inner_ == 0 ? 0 : offset + row * strides[0];
  }

  float element(int k, int64_t i) const {
    float value;
    copy(k, i, 1, &value);
    return value;
  }
  void copy(int k, int64_t from, int64_t n, float* to) const {
    if (op_.input_types[k] == DType::kI32) {
      const auto* integers = static_cast<const int32_t*>(op_.inputs[k]) + from;
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(integers[i]);
    } else if (op_.input_types[k] == DType::kBF16) {
      const auto* halves = static_cast<const BFloat16*>(op_.inputs[k]) + from;
      for (int64_t i = 0; i < n; ++i) to[i] = to_float(halves[i]);
    } else {
      std::memcpy(to, static_cast<const float*>(op_.inputs[k]) + from, n * sizeof(float));
    }
  }
  // n elements from `from` on, in place or converted to floats.
  const float* run(int k, int64_t from, int64_t n) {
    if (op_.input_types[k] == DType::kF32) return static_cast<const float*>(op_.inputs[k]) + from;
    copy(k, from, n, values_[k]);
    return values_[k];
  }
  const float* splat(int k, int64_t from) {
    std::fill_n(values_[k], 16, element(k, from));
    return values_[k];
  }

  void copy_rows(int k, const PointwiseBlock& block) {
    if (blocks_.rows_each() == 1) {
      rows_at_[k] = run(k, block.column, block.n);
      return;
    }
    for (int64_t at = 0; at < block.n; at += blocks_.row_length())
      copy(k, 0, blocks_.row_length(), values_[k] + at);
    rows_at_[k] = values_[k];
  }

  PointwiseOperand strided(int k, const PointwiseBlock& block) {
    const bool runs = op_.loops.strides[k][inner_] == 1;
    if (blocks_.rows_each() == 1) {
      const int64_t begin = begin_of(k, block.row);
      if (!runs) return {splat(k, begin), 0};
      return {run(k, begin + block.column, block.n), ~size_t{0}};
    }
    const int64_t length = blocks_.row_length();
    for (int64_t at = 0, row = block.row; at < block.n; at += length, ++row) {
      const int64_t begin = begin_of(k, row);
      if (runs) {
        copy(k, begin, length, values_[k] + at);
      } else {
        std::fill_n(values_[k] + at, length, element(k, begin));
      }
    }
    return {values_[k], ~size_t{0}};
  }

  const graph::PointwiseForward<float>& op_;
  const PointwiseBlocks& blocks_;
  const int inner_;  // index of the innermost loop
  bool entered_ = false;
  Kind kinds_[graph::PointwiseCode::kMaxInputs];
  const float* rows_at_[graph::PointwiseCode::kMaxInputs];
  alignas(64) float values_[graph::PointwiseCode::kMaxInputs][PointwiseBlocks::kElements];
};

}  // namespace lockstep::cpu
