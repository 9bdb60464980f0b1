#pragma once
// The shape of a tensor.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "runtime/base/check.h"

namespace lockstep {

// Extents of a dense row-major tensor, outermost first; at most eight dimensions, held inline.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) {
    LOCKSTEP_REQUIRE(extents.size() <= kMaxRank);
    for (int64_t extent : extents) extents_[rank_++] = extent;
  }

  int rank() const { return rank_; }
  int64_t operator[](int dimension) const { return extents_[dimension]; }
  void append(int64_t extent) {
    LOCKSTEP_REQUIRE(rank_ < kMaxRank);
    extents_[rank_++] = extent;
  }

  // Product of all extents; 1 for a scalar.
  int64_t elements() const {
    int64_t product = 1;
    for (int i = 0; i < rank_; ++i) product *= extents_[i];
    return product;
  }
  // Extent of the innermost dimension (columns) and product of the others (rows).
  int64_t columns() const { return rank_ == 0 ? 1 : extents_[rank_ - 1]; }
  int64_t rows() const { return columns() == 0 ? 0 : elements() / columns(); }

  bool operator==(const Shape& other) const = default;

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

// "(2, 256, 768)".
inline std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (int i = 0; i < shape.rank(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

}  // namespace lockstep
