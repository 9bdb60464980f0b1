#pragma once
// Views as nested loops over arrays.

#include <algorithm>
#include <array>
#include <cstdint>

#include "runtime/graph/view.h"

namespace lockstep::cpu {

// A loop of `count` rounds; each advances by `from` elements in the source and by `to` in the
// destination.
struct StridedLoop {
  int64_t count, from, to;
};

// The elements of y that a view reads, as nested loops, outermost first.
struct StridedLoops {
  std::array<StridedLoop, graph::View::kMaxRank> loops;
  int rank = 0;              // 0: one element
  int64_t from = 0, to = 0;  // offset of the first element

  explicit StridedLoops(const graph::View& view) : from(view.offset) {
    std::array<int64_t, graph::View::kMaxRank> y_strides;
    int64_t y_stride = 1;
    for (int d = view.rank; d-- > 0;) {
      y_strides[d] = y_stride;
      y_stride *= view.dimensions[d].extent;
    }
    for (int d = 0; d < view.rank; ++d) {
      const graph::ViewDimension& dimension = view.dimensions[d];
      const int64_t count = std::max<int64_t>(
          0, (dimension.end - dimension.begin + dimension.step - 1) / dimension.step);
      to += dimension.begin * y_strides[d];
      append({count, dimension.stride, dimension.step * y_strides[d]});
    }
  }

  int64_t elements() const {
    int64_t product = 1;
    for (int d = 0; d < rank; ++d) product *= loops[d].count;
    return product;
  }

 private:
  void append(const StridedLoop& next) {
    if (next.count == 1) return;
    if (rank > 0) {
      StridedLoop& last = loops[rank - 1];
      if (last.from == next.from * next.count && last.to == next.to * next.count) {
        last = {last.count * next.count, next.from, next.to};
        return;
      }
    }
    loops[rank++] = next;
  }
};

// The offsets of one round of the outermost `rank` loops.
class StridedPosition {
 public:
  // Starts at round `round`, counted from 0.
  StridedPosition(const StridedLoops& all, int rank, int64_t round)
      : all_(all), rank_(rank), from(all.from), to(all.to) {
    for (int d = rank; d-- > 0;) {
      const StridedLoop& loop = all.loops[d];
      index_[d] = round % loop.count;
      round /= loop.count;
      from += index_[d] * loop.from;
      to += index_[d] * loop.to;
    }
  }
  void advance() {
    for (int d = rank_; d-- > 0;) {
      const StridedLoop& loop = all_.loops[d];
      from += loop.from;
      to += loop.to;
      if (++index_[d] < loop.count) return;
      index_[d] = 0;
      from -= loop.count * loop.from;
      to -= loop.count * loop.to;
    }
  }

 private:
  const StridedLoops& all_;
  int rank_;
  std::array<int64_t, graph::View::kMaxRank> index_;

 public:
  int64_t from, to;
};

}  // namespace lockstep::cpu
