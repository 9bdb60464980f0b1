#pragma once
// Views: which element of a tensor x each element of a tensor y reads, if that is arithmetic on the
// indices of y. Transposes, slices, broadcasts, tiles and paddings are views, and so are their
// gradients. Plain data.

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/base/shape.h"

namespace lockstep::graph {

// One dimension of y. Indices begin, begin + step, ... below end read x; the others do not.
struct ViewDimension {
  int64_t extent = 1;
  int64_t begin = 0, end = 1;
  int64_t step = 1;
  int64_t stride = 0;  // elements of x between two consecutive reads; 0: all read the same

  bool reads_everywhere() const { return begin == 0 && end == extent && step == 1; }
};

// Element (i0, i1, ...) of y reads x if each of its indices reads; otherwise it is `fill`.
struct View {
  static constexpr int kMaxRank = 2 * Shape::kMaxRank;  // a tile has two for each dimension of x

  std::array<ViewDimension, kMaxRank>
      dimensions{};    // of y, outermost first; adjacent ones are merged if possible
  int rank = 0;        // 0: one element
  int64_t offset = 0;  // of the element of x that the first reading indices read
  float fill = 0;

  int64_t elements() const;  // of y
  bool reads_everywhere() const;
  // Whether y is a copy of x, element by element.
  bool is_copy(const Shape& x) const;
};

// The terms of a sum: nested loops with `count` iterations, `stride` elements apart.
struct ViewTerms {
  struct Loop {
    int64_t count = 1, stride = 0;
  };
  Loop loops[View::kMaxRank];  // outermost first; an array, so that kernels can read it
  int rank = 0;

  int64_t count() const;
};

// How a dimension of y is read. Index i in [begin, end) reads index start + (i - begin) move of
// dimension `source` of x. With kNone, all indices read the same element.
struct ViewAxis {
  static constexpr int kNone = -1;
  int source = kNone;
  int64_t extent = 1;
  int64_t begin = 0, end = 1;
  int64_t start = 0;
  int64_t move = 1;  // not 0

  // The first `extent` indices of dimension `source`.
  static ViewAxis first(int source, int64_t extent) {
    return {.source = source, .extent = extent, .begin = 0, .end = extent};
  }
};

// A view of x and its inverse. The gradient of an element of x is the sum, over `terms`, of the
// gradients of y at these offsets from where `inverse` reads; zero if `inverse` does not read.
struct ViewAndInverse {
  View view;
  View inverse;
  ViewTerms terms;
};

// `axes`: those of y in order. Each dimension of x is the source of exactly one of them.
ViewAndInverse make_view(const Shape& x, const std::vector<ViewAxis>& axes, float fill);

}  // namespace lockstep::graph
