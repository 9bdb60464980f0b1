#pragma once
// What the tests of CUDA kernels on the host share: loops over the orders in which threads run and
// over the stored types, and arrays of those types.

#include <string>
#include <vector>

#include "runtime/base/half.h"
#include "tests/fibers/order.h"
#include "tests/reference/kernel_test.h"

namespace lockstep::test {

// Runs f(name of the order) with blocks and their threads in forward, reverse and shuffled order. f
// returns the bytes that the kernel wrote: they must not depend on the order.
template <typename F>
void for_each_order(F f) {
  using fibers::Order;
  const std::vector<std::byte> forward = (fibers::order = Order::kForward, f("forward"));
  const std::vector<std::byte> reverse = (fibers::order = Order::kReverse, f("reverse"));
  const std::vector<std::byte> shuffled = (fibers::order = Order::kShuffled, f("shuffled"));
  fibers::order = Order::kEach;
  EXPECT_EQ(forward, reverse) << "the bits depend on the order of blocks or threads";
  EXPECT_EQ(forward, shuffled) << "the bits depend on the order of blocks or threads";
}

// The bytes of several arrays, one after the other.
template <typename... Arrays>
std::vector<std::byte> bytes_of(const Arrays&... arrays) {
  std::vector<std::byte> all;
  const auto append = [&](const auto& array) {
    const auto* begin = reinterpret_cast<const std::byte*>(array.data());
    all.insert(all.end(), begin, begin + array.size() * sizeof(array.data()[0]));
  };
  (append(arrays), ...);
  return all;
}

// Relative spacing of a stored type: rounding to it changes a number by half of this at most.
template <typename T>
inline constexpr double kSpacing = std::is_same_v<T, float>      ? 0x1p-23
                                   : std::is_same_v<T, BFloat16> ? 0x1p-7
                                                                 : 0x1p-10;

// Uniform numbers in [low, high), rounded to T.
template <typename T>
void fill_stored(Guarded<T>& values, double low, double high, uint64_t seed) {
  std::vector<float> wide(static_cast<size_t>(values.size()));
  fill_uniform(wide, low, high, seed);
  for (int64_t i = 0; i < values.size(); ++i) values[i] = round_to<T>(wide[static_cast<size_t>(i)]);
}

template <typename T>
std::vector<double> as_doubles(const Guarded<T>& values) {
  std::vector<double> wide;
  for (const T& value : values) wide.push_back(to_float(value));
  return wide;
}

using StoredTypes = ::testing::Types<float, BFloat16, Float16>;

}  // namespace lockstep::test
