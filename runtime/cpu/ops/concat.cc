// Elements are copied as words (words.h).
#include "runtime/graph/ops/concat.h"

#include <algorithm>

#include "runtime/base/half.h"
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

template <typename T>
void run_forward(const graph::ConcatForward<T>& op) {
  for_each_run(op.sizes, [&](int k, int64_t from, int64_t to, int64_t n) {
    copy_words(op.x[k] + from, n, op.y + to);
  });
}

template <typename T>
void run_backward(const graph::ConcatBackward<T>& op) {
  for_each_run(op.sizes, [&](int k, int64_t to, int64_t from, int64_t n) {
    if (op.d_x[k] != nullptr) copy_words(op.d_y + from, n, op.d_x[k] + to);
  });
}

constexpr exec::Implementation kRows[] = {
    native_row<run_forward<float>, run_forward<BFloat16>>(graph::OpKind::kConcat, "copies"),
    native_row<run_backward<float>, run_backward<BFloat16>>(graph::OpKind::kConcatBackward,
                                                            "copies"),
};

}  // namespace

constinit const exec::Implementations kCpuConcat = kRows;

}  // namespace lockstep::cpu
