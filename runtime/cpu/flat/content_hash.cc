#include "runtime/cpu/flat/content_hash.h"

#include <atomic>
#include <bit>

#include "runtime/base/half.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

namespace lockstep::cpu {

template <typename T>
ContentHash content_hash(const T* x, int64_t n, uint64_t first_index) {
  std::atomic<uint64_t> sum = 0, not_finite = 0;  // integers, so their order does not matter
  parallel_for(n, kGrainElements, [&](int64_t begin, int64_t end) {
    uint64_t mixed = 0, bad = 0;
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t bits = std::bit_cast<uint32_t>(to_float(x[i]));
      mixed += mix_element(first_index + static_cast<uint64_t>(i), bits);
      bad += is_not_finite(bits) ? 1 : 0;
    }
    sum += mixed;
    not_finite += bad;
  });
  return {sum, not_finite};
}
template ContentHash content_hash(const float* x, int64_t n, uint64_t first_index);
template ContentHash content_hash(const BFloat16* x, int64_t n, uint64_t first_index);

}  // namespace lockstep::cpu
