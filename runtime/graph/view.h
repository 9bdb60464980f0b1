#pragma once
// Views: which element of a tensor x each element of a tensor y reads, where that is arithmetic on
// the indices of y. Transposes, slices, broadcasts, tiles and paddings are views, and so are their
// gradients. Plain data.

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/base/shape.h"

namespace lockstep {

// One dimension of y. The indices begin, begin + step, ... below end read x; the others do not.
struct ViewDimension {
  int64_t extent = 1;
  int64_t begin = 0, end = 1;
  int64_t step = 1;
  int64_t stride = 0;  // elements of x from one that reads to the next; 0: all read the same

  bool reads_everywhere() const { return begin == 0 && end == extent && step == 1; }
};

// Element (i0, i1, ...) of y reads x where each index reads; else it is `fill`.
struct View {
  static constexpr int kMaxRank = 2 * Shape::kMaxRank;  // a tile has two for each one of x

  std::array<ViewDimension, kMaxRank>
      dimensions{};    // of y, outermost first, merged where they can be
  int rank = 0;        // 0: one element
  int64_t offset = 0;  // of the element of x that is read where each index is the first that reads
  float fill = 0;

  int64_t elements() const;  // of y
  bool reads_everywhere() const;
  // Whether y is all of x, element by element.
  bool is_copy(const Shape& x) const;
};

// Elements that are summed: a loop over `count`, `stride` elements apart.
struct ViewTerms {
  struct Loop {
    int64_t count = 1, stride = 0;
  };
  Loop loops[View::kMaxRank];  // outermost first; an array that kernels can read
  int rank = 0;

  int64_t count() const;
};

// What a dimension of y is made of. Index i in [begin, end) of it reads the index start + (i -
// begin) move of dimension `source` of x, or, with kNone, reads the same x as any other.
struct ViewAxis {
  static constexpr int kNone = -1;
  int source = kNone;
  int64_t extent = 1;
  int64_t begin = 0, end = 1;
  int64_t start = 0;
  int64_t move = 1;  // not 0
};

// A view of x, and the way back: the gradient of an element of x is the sum over `terms` of the
// gradients of y that lie so far from where `inverse` reads, or zero where it does not read.
struct ViewAndInverse {
  View view;
  View inverse;
  ViewTerms terms;
};

// Of the axes of y, in their order. Each dimension of x stands in one of them.
ViewAndInverse make_view(const Shape& x, const std::vector<ViewAxis>& axes, float fill);

}  // namespace lockstep
