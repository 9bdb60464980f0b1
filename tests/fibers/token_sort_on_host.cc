// Stands in for runtime/cuda/ops/token_sort.cu, which is CUB's.
#include <algorithm>
#include <numeric>

#include "runtime/cuda/ops/token_sort.h"
#include "tests/fibers/host_stream.h"
#include "tests/fibers/kernel_memory.h"

namespace lockstep::cuda {

void sort_tokens(const int32_t* ids,
                 int64_t n,
                 int64_t,
                 int32_t* sorted_ids,
                 int32_t* positions,
                 std::byte*,
                 Stream stream) {
  fibers::check_arrays("CUB's sort", {ids, sorted_ids, positions});
  fibers::enqueue(stream, [=] {
    std::iota(positions, positions + n, 0);
    std::stable_sort(
        positions, positions + n, [&](int32_t a, int32_t b) { return ids[a] < ids[b]; });
    for (int64_t i = 0; i < n; ++i) sorted_ids[i] = ids[positions[i]];
  });
}

}  // namespace lockstep::cuda
