#include "runtime/checkpoint/format/file_layout.h"

namespace lockstep::checkpoint {
namespace {

// (O, P, D, C) in memory, (O, C, D, P) in the file. P is the number of positions of the other axes;
// D is 1 if there is no depth.
struct Order {
  int64_t outputs, pixels, depth, channels;

  explicit Order(const Shape& order)
      : outputs(order[0]),
        pixels(order.rank() == 3 ? order[1] : order[1] * order[2]),
        depth(order.rank() == 5 ? order[3] : 1),
        channels(order[order.rank() - 1]) {}
};

// Calls body(index in memory, index in the file) for every element.
template <typename Body>
void each_element(const Shape& channels_last, Body&& body) {
  const Order order(channels_last);
  for (int64_t o = 0; o < order.outputs; ++o) {
    for (int64_t c = 0; c < order.channels; ++c) {
      for (int64_t d = 0; d < order.depth; ++d) {
        for (int64_t p = 0; p < order.pixels; ++p)
          body(((o * order.pixels + p) * order.depth + d) * order.channels + c,
               ((o * order.channels + c) * order.depth + d) * order.pixels + p);
      }
    }
  }
}

}  // namespace

std::vector<int64_t> file_extents(const NamedSlice& slice) {
  const Shape& order = slice.channels_last;
  // A linear layer keeps its number of columns.
  if (slice.shape.rank() == 4) {
    if (order.rank() == 3) return {order[0], order[2], order[1]};
    if (order.rank() == 4) return {order[0], order[3], order[1], order[2]};
    if (order.rank() == 5) return {order[0], order[4], order[3], order[1], order[2]};
  }
  std::vector<int64_t> extents;
  for (int i = 0; i < slice.shape.rank(); ++i) extents.push_back(slice.shape[i]);
  return extents;
}

bool is_reordered(const NamedSlice& slice) {
  if (slice.channels_last.rank() == 0) return false;
  const Order order(slice.channels_last);
  return (order.pixels > 1) + (order.depth > 1) + (order.channels > 1) > 1;
}

void to_file_order(const NamedSlice& slice, const float* memory, float* file) {
  each_element(slice.channels_last,
               [&](int64_t in_memory, int64_t in_file) { file[in_file] = memory[in_memory]; });
}

void from_file_order(const NamedSlice& slice, const float* file, float* memory) {
  each_element(slice.channels_last,
               [&](int64_t in_memory, int64_t in_file) { memory[in_memory] = file[in_file]; });
}

}  // namespace lockstep::checkpoint
