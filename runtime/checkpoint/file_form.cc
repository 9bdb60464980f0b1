#include "runtime/checkpoint/file_form.h"

namespace lockstep {
namespace {

// Calls body(index in memory, index in the file) for every element.
template <typename Body>
void each_element(const Shape& channels_last, Body&& body) {
  const int64_t outputs = channels_last[0], channels = channels_last[3],
                pixels = channels_last[1] * channels_last[2];
  for (int64_t o = 0; o < outputs; ++o) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t p = 0; p < pixels; ++p)
        body((o * pixels + p) * channels + c, (o * channels + c) * pixels + p);
    }
  }
}

}  // namespace

std::vector<int64_t> file_extents(const NamedSlice& slice) {
  const Shape& order = slice.channels_last;
  // A linear layer's columns keep their number.
  if (order.rank() > 0 && slice.shape.rank() == 4) return {order[0], order[3], order[1], order[2]};
  std::vector<int64_t> extents;
  for (int i = 0; i < slice.shape.rank(); ++i) extents.push_back(slice.shape[i]);
  return extents;
}

bool is_reordered(const NamedSlice& slice) {
  const Shape& order = slice.channels_last;
  return order.rank() > 0 && order[1] * order[2] > 1 && order[3] > 1;
}

void to_file_order(const NamedSlice& slice, const float* memory, float* file) {
  each_element(slice.channels_last,
               [&](int64_t in_memory, int64_t in_file) { file[in_file] = memory[in_memory]; });
}

void from_file_order(const NamedSlice& slice, const float* file, float* memory) {
  each_element(slice.channels_last,
               [&](int64_t in_memory, int64_t in_file) { memory[in_memory] = file[in_file]; });
}

}  // namespace lockstep
