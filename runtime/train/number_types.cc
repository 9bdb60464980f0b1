#include "runtime/train/number_types.h"

#include "runtime/base/threads.h"

namespace lockstep::train {
namespace {

constexpr int64_t kGrain = 65536;  // the least work for a thread

}  // namespace

void round_numbers(std::span<const float> from, DType dtype, std::byte* to) {
  with_numbers(to, dtype, [&]<typename T>(T* out) {
    parallel_for(std::ssize(from), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = round_to<T>(from[static_cast<size_t>(i)]);
    });
  });
}

void widen_numbers(const std::byte* from, DType dtype, std::span<float> to) {
  with_numbers(from, dtype, [&](const auto* in) {
    parallel_for(std::ssize(to), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[static_cast<size_t>(i)] = to_float(in[i]);
    });
  });
}

}  // namespace lockstep::train
