#include "runtime/graph/view.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace lockstep::graph {
namespace {

std::vector<int64_t> strides_of(const Shape& shape) {
  std::vector<int64_t> strides(static_cast<size_t>(shape.rank()), 1);
  for (int d = shape.rank() - 1; d-- > 0;)
    strides[static_cast<size_t>(d)] = strides[static_cast<size_t>(d) + 1] * shape[d + 1];
  return strides;
}

// Appends a dimension, or merges it into the last one, so that each index of the last one stands
// for as many indices as the new one has.
void append(View& view, ViewDimension next) {
  if (next.end - next.begin <= next.step) {  // at most one index reads
    next.step = 1;
    next.end = std::min(next.end, next.begin + 1);
    next.stride = 0;
  }
  if (next.extent == 1 && next.reads_everywhere()) return;
  if (view.rank > 0) {
    ViewDimension& last = view.dimensions[static_cast<size_t>(view.rank - 1)];
    const bool steady = last.end - last.begin == 1 || last.stride == next.stride * next.extent;
    if (next.reads_everywhere() && last.step == 1 && steady) {
      last = {last.extent * next.extent,
              last.begin * next.extent,
              last.end * next.extent,
              1,
              next.stride};
      return;
    }
  }
  LOCKSTEP_CHECK(view.rank < View::kMaxRank);
  view.dimensions[static_cast<size_t>(view.rank++)] = next;
}

void append(ViewTerms& terms, ViewTerms::Loop next) {
  if (next.count == 1) return;
  if (terms.rank > 0) {
    ViewTerms::Loop& last = terms.loops[terms.rank - 1];
    if (last.stride == next.stride * next.count) {
      last = {last.count * next.count, next.stride};
      return;
    }
  }
  terms.loops[terms.rank++] = next;
}

// The dimension of x along `axis`, as the gradient reads it; moves `offset` to the first element of
// y that is read.
ViewDimension inverse_of(const ViewAxis& axis, int64_t extent, int64_t stride, int64_t& offset) {
  const int64_t last = std::max<int64_t>(0, axis.end - axis.begin - 1);
  const bool forward = axis.move > 0;
  const int64_t first = forward ? axis.start : axis.start + last * axis.move;
  offset += (forward ? axis.begin : axis.begin + last) * stride;
  const int64_t step = forward ? axis.move : -axis.move;
  const int64_t end = axis.begin < axis.end ? first + last * step + 1 : first;
  return {extent, first, end, step, forward ? stride : -stride};
}

}  // namespace

int64_t View::elements() const {
  int64_t product = 1;
  for (int d = 0; d < rank; ++d) product *= dimensions[static_cast<size_t>(d)].extent;
  return product;
}

bool View::reads_everywhere() const {
  return std::all_of(dimensions.begin(), dimensions.begin() + rank, [](const ViewDimension& d) {
    return d.reads_everywhere();
  });
}

bool View::is_copy(const Shape& x) const {
  if (elements() != x.elements() || offset != 0 || !reads_everywhere()) return false;
  return rank == 0 || (rank == 1 && dimensions[0].stride == 1);
}

int64_t ViewTerms::count() const {
  int64_t product = 1;
  for (int d = 0; d < rank; ++d) product *= loops[d].count;
  return product;
}

ViewAndInverse make_view(const Shape& x, const std::vector<ViewAxis>& axes, float fill) {
  const std::vector<int64_t> x_strides = strides_of(x);
  ViewAndInverse made;
  made.view.fill = fill;
  std::vector<ViewDimension> inverse(static_cast<size_t>(x.rank()));
  std::vector<int> walked(static_cast<size_t>(x.rank()), 0);
  std::vector<ViewTerms::Loop> terms;  // innermost first
  int64_t y_stride = 1;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    if (axis->source == ViewAxis::kNone) {
      terms.push_back({axis->extent, y_stride});
    } else {
      const auto source = static_cast<size_t>(axis->source);
      inverse[source] = inverse_of(*axis, x[axis->source], y_stride, made.inverse.offset);
      ++walked[source];
    }
    y_stride *= axis->extent;
  }
  for (const ViewAxis& axis : axes) {
    int64_t stride = 0;
    if (axis.source != ViewAxis::kNone) {
      const int64_t x_stride = x_strides[static_cast<size_t>(axis.source)];
      stride = axis.move * x_stride;
      made.view.offset += axis.start * x_stride;
    }
    append(made.view, {axis.extent, axis.begin, axis.end, 1, stride});
  }
  LOCKSTEP_CHECK(std::all_of(walked.begin(), walked.end(), [](int times) { return times == 1; }));
  for (const ViewDimension& dimension : inverse) append(made.inverse, dimension);
  for (auto term = terms.rbegin(); term != terms.rend(); ++term) append(made.terms, *term);
  return made;
}

}  // namespace lockstep::graph
