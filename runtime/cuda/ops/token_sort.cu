// The only file that uses CUB, which the host's compiler cannot compile, so it is not among the
// kernels that are tested on the host.
#include "runtime/cuda/ops/token_sort.h"

#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "runtime/base/check.h"
#include "runtime/cuda/for_each.h"

namespace lockstep::cuda {
namespace {

struct Count {
  int32_t* out;
  template <typename Width>
  __device__ void operator()(int64_t i, Width) const {
    for (int k = 0; k < Width::value; ++k) out[i + k] = static_cast<int32_t>(i + k);
  }
};

// The temporary storage that CUB needs on the current GPU.
size_t temporary_bytes(int64_t n) {
  size_t bytes = 0;
  const int32_t* in = nullptr;
  int32_t* out = nullptr;
  cub::DeviceRadixSort::SortPairs(nullptr, bytes, in, out, in, out, static_cast<int>(n));
  return bytes;
}

}  // namespace

void sort_tokens(const int32_t* ids,
                 int64_t n,
                 int64_t vocabulary,
                 int32_t* sorted_ids,
                 int32_t* positions,
                 std::byte* workspace,
                 Stream stream) {
  auto* const before = reinterpret_cast<int32_t*>(workspace);
  const size_t offset = aligned_bytes(static_cast<size_t>(n) * sizeof(int32_t));
  for_each_flat<4>(n, true, Count{before}, stream);
  size_t bytes = temporary_bytes(n);
  LOCKSTEP_REQUIRE(bytes <= radix_sort_bytes(n));
  const int bits = std::bit_width(static_cast<uint64_t>(vocabulary));
  // A radix sort is stable.
  check_launch(cub::DeviceRadixSort::SortPairs(workspace + offset,
                                               bytes,
                                               ids,
                                               sorted_ids,
                                               before,
                                               positions,
                                               static_cast<int>(n),
                                               0,
                                               bits,
                                               stream),
               std::source_location::current());
}

}  // namespace lockstep::cuda
