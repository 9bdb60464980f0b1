// Elements are copied as words of four bytes, whatever their type.
#include "runtime/graph/ops/concat.h"

#include <algorithm>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/words.h"

namespace lockstep::cpu {
namespace {

// f(input, its first element, first element of y, elements) for each contiguous run of y.
template <typename F>
void for_each_run(const graph::ConcatAttributes& sizes, F f) {
  const int64_t columns = sizes.columns();
  parallel_for(sizes.rows * columns, kGrainElements, [&](int64_t begin, int64_t end) {
    int64_t row = begin / columns, column = begin % columns;
    int k = static_cast<int>(
        std::upper_bound(sizes.ends.begin(), sizes.ends.begin() + sizes.count, column) -
        sizes.ends.begin());
    for (int64_t at = begin; at < end;) {
      const int64_t first = k == 0 ? 0 : sizes.ends[k - 1], width = sizes.ends[k] - first;
      const int64_t n = std::min(end - at, sizes.ends[k] - column);
      if (n > 0) f(k, row * width + column - first, at, n);
      at += n;
      column += n;
      if (++k == sizes.count) {
        k = 0;
        column = 0;
        ++row;
      }
    }
  });
}

void run_forward(const graph::ConcatForward<float>& op) {
  for_each_run(op.sizes, [&](int k, int64_t from, int64_t to, int64_t n) {
    copy_words(op.x[k] + from, n, op.y + to);
  });
}

void run_backward(const graph::ConcatBackward<float>& op) {
  for_each_run(op.sizes, [&](int k, int64_t to, int64_t from, int64_t n) {
    if (op.d_x[k] != nullptr) copy_words(op.d_y + from, n, op.d_x[k] + to);
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward>(graph::OpKind::kConcat, "copies"),
    exec::row<run_backward>(graph::OpKind::kConcatBackward, "copies"),
};

}  // namespace

constinit const exec::Implementations kCpuConcat = kRows;

}  // namespace lockstep::cpu
