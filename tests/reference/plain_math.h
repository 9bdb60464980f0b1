#pragma once
// SliceMath and PowerSgdProducts in plain loops on the host, for tests of what works with it.

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "collectives/exchange/slice_math.h"
#include "collectives/power_sgd/power_sgd_products.h"
#include "runtime/base/error.h"
#include "runtime/base/half.h"
#include "tests/reference/power_sgd.h"

namespace lockstep::test {

class PlainMath final : public collectives::SliceMath, public collectives::PowerSgdProducts {
 public:
  void tree_sum(const collectives::TreeSumTerms& terms, float* out, int64_t n) override {
    for (int64_t i = 0; i < n; ++i) {
      out[i] =
          terms.residuals ? keeping_sum(terms, 0, terms.count, i) : sum(terms, 0, terms.count, i);
      if (terms.round_sum) out[i] = rounded(out[i], terms.wire);
      for (int c = 0; c < terms.copy_count; ++c) terms.copies[c][i] = out[i];
    }
  }
  void pack(const float* from, DType wire, std::byte* to, int64_t n) override {
    LOCKSTEP_CHECK(wire == DType::kBF16);
    auto* const packed = reinterpret_cast<BFloat16*>(to);
    for (int64_t i = 0; i < n; ++i) packed[i] = round_to<BFloat16>(from[i]);
  }
  void add_rows(const collectives::AddedRows& rows,
                int64_t begin,
                int64_t end,
                float* to) override {
    for (int64_t i = 0; i < rows.count * rows.columns; ++i) {
      const int64_t element = rows.ids[i / rows.columns] * rows.columns + i % rows.columns;
      if (begin <= element && element < end)
        to[element - begin] += reinterpret_cast<const float*>(rows.rows)[i];
    }
  }
  void add_bits(const std::byte* x, DType dtype, int64_t n, uint32_t* bits) override {
    const size_t bytes = size_of(dtype);
    for (int64_t i = 0; i < n; ++i) {
      uint32_t element = 0;
      std::memcpy(&element, x + static_cast<size_t>(i) * bytes, bytes);
      *bits += element;
    }
  }
  void add_squares(const float* x, int64_t n, ExactSum* sum, uint32_t* bits) override {
    if (bits != nullptr) add_bits(reinterpret_cast<const std::byte*>(x), DType::kF32, n, bits);
    for (int64_t begin = 0; begin < n; begin += kSquaresChunk) {
      double chunk = 0;
      for (int64_t i = begin; i < std::min(begin + kSquaresChunk, n); ++i)
        chunk += static_cast<double>(x[i]) * x[i];
      sum->add(chunk);
    }
  }
  void left(const float* matrix,
            const float* right,
            const collectives::PowerSgdShape& shape,
            float* left) override {
    assign(left,
           test::power_sgd_left(doubles(matrix, shape.rows * shape.columns),
                                doubles(right, shape.columns * shape.rank),
                                shape));
  }
  void right(const float* matrix,
             const float* left,
             const collectives::PowerSgdShape& shape,
             float* right) override {
    assign(right,
           test::power_sgd_right(doubles(matrix, shape.rows * shape.columns),
                                 doubles(left, shape.rows * shape.rank),
                                 shape));
  }
  void fill_zero_columns(float* right, int64_t columns, int rank) override {
    for (int k = 0; k < rank; ++k) {
      bool zeros = true;
      for (int64_t i = k; i < columns * rank; i += rank) zeros = zeros && right[i] == 0;
      for (int64_t i = k; zeros && i < columns * rank; i += rank)
        right[i] = collectives::power_sgd_noise(i);
    }
  }
  void orthonormalize(float* left, int64_t rows, int rank) override {
    assign(left, test::orthonormal(doubles(left, rows * rank), rank));
  }
  void product(const float* left,
               const float* right,
               const collectives::PowerSgdShape& shape,
               float* matrix) override {
    assign(matrix,
           test::power_sgd_product(doubles(left, shape.rows * shape.rank),
                                   doubles(right, shape.columns * shape.rank),
                                   shape));
  }
  void subtract(float* matrix, const float* product, float factor, int64_t n) override {
    for (int64_t i = 0; i < n; ++i) matrix[i] -= factor * product[i];
  }
  void fill_zeros(float* out, int64_t n) override { std::fill_n(out, n, 0.0f); }
  void copy(const std::byte* from, std::byte* to, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  std::byte* allocate_host(size_t bytes) override {
    return reinterpret_cast<std::byte*>(results_.emplace_back(bytes / sizeof(double)).data());
  }
  void synchronize() override {}

 private:
  std::deque<std::vector<double>> results_;
  static std::vector<double> doubles(const float* x, int64_t n) { return {x, x + n}; }
  static void assign(float* to, const std::vector<double>& from) {
    std::transform(from.begin(), from.end(), to, [](double x) { return static_cast<float>(x); });
  }
  static float rounded(float x, DType wire) {
    return wire == DType::kBF16 ? to_float(round_to<BFloat16>(x)) : x;
  }
  // The term with which the right half of the tree over terms [first, first + count) begins.
  static int middle_of(const collectives::TreeSumTerms& terms, int first, int count) {
    if (terms.joins == nullptr) return first + count / 2;
    std::vector<int> open;  // the first terms of the sums so far
    for (int k = first;; ++k) {
      open.push_back(k);
      for (int joins = terms.joins[k]; joins > 0 && open.size() > 1; --joins) {
        if (k + 1 == first + count && open.size() == 2) return open.back();
        open.pop_back();
      }
    }
  }
  static float sum(const collectives::TreeSumTerms& terms, int first, int count, int64_t i) {
    if (count == 1) return read(terms, first, i);
    const int middle = middle_of(terms, first, count);
    return rounded(sum(terms, first, middle - first, i), terms.wire) +
           rounded(sum(terms, middle, first + count - middle, i), terms.wire);
  }
  static float keeping_sum(const collectives::TreeSumTerms& terms,
                           int first,
                           int count,
                           int64_t i) {
    if (count == 1 && terms.count > 1) return read(terms, first, i);
    const int middle = count == 1 ? 1 : middle_of(terms, first, count);
    const float exact = count == 1 ? read(terms, first, i)
                                   : keeping_sum(terms, first, middle - first, i) +
                                         keeping_sum(terms, middle, first + count - middle, i);
    uint16_t& kept = terms.residuals.of(middle)[i];
    const float wanted = exact + to_float(BFloat16{kept});
    const float sum = to_float(round_to<BFloat16>(wanted));
    kept = round_to<BFloat16>(wanted - sum).bits;
    return sum;
  }
  static float read(const collectives::TreeSumTerms& terms, int number, int64_t i) {
    return terms.travelled ? to_float(static_cast<const BFloat16*>(terms.arrays[number])[i])
                           : static_cast<const float*>(terms.arrays[number])[i];
  }
};

}  // namespace lockstep::test
