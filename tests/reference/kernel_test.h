#pragma once
// What the kernel tests share: buffers with guard zones, random values, comparisons in which NaN
// fails, finite differences, and loops over instruction sets and thread counts.

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/base/rng.h"
#include "runtime/base/threads.h"
#include "tests/reference/sanitizers.h"

namespace lockstep::test {

// Spacing of floats at 1, the unit of the tolerances.
inline constexpr double kEps = std::numeric_limits<float>::epsilon();

// An array between two guard zones, `offset` elements past a 64-byte boundary (offset 1 is
// misaligned for every vector width). The array starts as 0xA5 bytes, a tiny negative float, so
// that elements left unwritten are seen. The destructor fails the test if anything wrote to a guard
// zone.
template <typename T>
class Guarded {
 public:
  explicit Guarded(int64_t n, int64_t offset = 0) : n_(n) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.assign(n * sizeof(T) + 2 * kGuardBytes + 64 + offset * sizeof(T), kPattern);
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data()) + kGuardBytes;
    const uintptr_t aligned = (address + 63) / 64 * 64;
    begin_ = kGuardBytes + (aligned - address) + offset * sizeof(T);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() {
    EXPECT_TRUE(intact()) << "a kernel wrote outside an array of " << n_ << " elements";
  }

  T* data() { return reinterpret_cast<T*>(bytes_.data() + begin_); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data() + begin_); }
  int64_t size() const { return n_; }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + n_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + n_; }
  std::vector<T> copy() const { return std::vector<T>(begin(), end()); }
  void assign(const std::vector<T>& values) {
    ASSERT_EQ(static_cast<int64_t>(values.size()), n_);
    std::copy(values.begin(), values.end(), data());
  }

  bool intact() const {
    const auto is_guard = [](unsigned char byte) { return byte == kPattern; };
    return std::all_of(bytes_.begin(), bytes_.begin() + begin_, is_guard) &&
           std::all_of(bytes_.begin() + begin_ + n_ * sizeof(T), bytes_.end(), is_guard);
  }

 private:
  static constexpr size_t kGuardBytes = 256;
  static constexpr unsigned char kPattern = 0xA5;

  int64_t n_;
  size_t begin_ = 0;
  std::vector<unsigned char> bytes_;
};

// Fills `values` (anything with size() and operator[]) with uniform numbers in [low, high), a pure
// function of `seed`.
template <typename Values>
void fill_uniform(Values& values, double low, double high, uint64_t seed) {
  const RngStream stream{.seed = seed, .purpose = kRngSynthetic};
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
    values[i] = static_cast<float>(low + (high - low) * uniform_from_word(philox_word(stream, i)));
  }
}

// The same of every size, from the smallest denormal numbers to the largest.
template <typename Values>
void fill_all_sizes(Values& values, uint64_t seed) {
  fill_uniform(values, -1, 1, seed);
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i)
    values[i] = std::ldexp(values[i], static_cast<int>(i * 37 % 277) - 148);
}

template <typename Values>
std::vector<double> to_double(const Values& values) {
  return std::vector<double>(values.begin(), values.end());
}

// Checks |actual - expected| <= tolerance(i) for every element; NaN fails unless both are NaN.
template <typename Actual, typename Expected>
void expect_close(const Actual& actual,
                  const Expected& expected,
                  const std::function<double(int64_t)>& tolerance,
                  const std::string& what) {
  ASSERT_EQ(static_cast<int64_t>(actual.size()), static_cast<int64_t>(expected.size())) << what;
  for (int64_t i = 0; i < static_cast<int64_t>(expected.size()); ++i) {
    const double a = actual[i], e = expected[i];
    if (std::isnan(a) && std::isnan(e)) continue;
    if (!(std::abs(a - e) <= tolerance(i))) {
      ADD_FAILURE() << what << "[" << i << "] = " << a << ", expected " << e << " within "
                    << tolerance(i);
      return;
    }
  }
}

template <typename Actual, typename Expected>
void expect_close(const Actual& actual,
                  const Expected& expected,
                  double tolerance,
                  const std::string& what) {
  expect_close(
      actual, expected, [=](int64_t) { return tolerance; }, what);
}

// Checks that two arrays have the same bytes.
template <typename A, typename B>
void expect_same_bits(const A& a, const B& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (int64_t i = 0; i < static_cast<int64_t>(a.size()); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(a[i])) != 0) {
      ADD_FAILURE() << what << "[" << i << "]: " << a[i] << " and " << b[i] << " differ";
      return;
    }
  }
}

// Checks `gradient`, claimed to be d f / d x at the current values of x, by central differences
// with step `step`. For f in double precision and of magnitude about 1 the error is about step^2
// f''' + 1e-16 / step: below 1e-8 for the default step.
inline void expect_gradient(const std::function<double()>& f,
                            std::vector<double>& x,
                            const std::vector<double>& gradient,
                            const std::string& what,
                            double tolerance = 1e-6,
                            double step = 1e-5) {
  ASSERT_EQ(x.size(), gradient.size()) << what;
  for (size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + step;
    const double above = f();
    x[i] = kept - step;
    const double below = f();
    x[i] = kept;
    const double numeric = (above - below) / (2 * step);
    if (!(std::abs(numeric - gradient[i]) <= tolerance * std::max(1.0, std::abs(gradient[i])))) {
      ADD_FAILURE() << what << "[" << i << "] = " << gradient[i] << ", finite differences say "
                    << numeric;
      return;
    }
  }
}

// Sets the number of compute threads for a scope.
class ScopedThreads {
 public:
  explicit ScopedThreads(int threads) : kept_(compute_threads()) { set_compute_threads(threads); }
  ~ScopedThreads() { set_compute_threads(kept_); }
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
  int kept_;
};

// Makes Highway choose `target` (such as HWY_AVX2) for a scope.
class ScopedTarget {
 public:
  explicit ScopedTarget(int64_t target) { choose(target); }
  ~ScopedTarget() { choose(0); }
  ScopedTarget(const ScopedTarget&) = delete;
  ScopedTarget& operator=(const ScopedTarget&) = delete;

 private:
  static void choose(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

// And the kernels are compiled for it.
inline bool cpu_has(int64_t target) {
  if (sanitized() && target == HWY_AVX3) return false;  // as the build leaves it out
  return (hwy::SupportedTargets() & target) != 0;
}

// Calls body(name) once for each instruction set that the kernels are compiled for and this CPU
// has.
inline void for_each_target(const std::function<void(const std::string& name)>& body) {
  for (int64_t target : {HWY_AVX3, HWY_AVX2}) {
    if (!cpu_has(target)) continue;
    ScopedTarget scope(target);
    body(hwy::TargetName(target));
  }
  // A target of which there is no copy leaves plain x86-64.
  ScopedTarget scope(HWY_SCALAR);
  body("baseline");
}

// Runs `compute`, which returns a kernel's results, on 1, 2 and 3 threads and on AVX2 and AVX-512
// (where the CPU has both), and checks that all give the same bits.
template <typename T>
void expect_reproducible(const std::function<std::vector<T>()>& compute, const std::string& what) {
  std::vector<T> first;
  {
    ScopedThreads one(1);
    first = compute();
  }
  for (int threads : {2, 3}) {
    ScopedThreads scope(threads);
    expect_same_bits(first, compute(), what + " on " + std::to_string(threads) + " threads");
  }
  if (!cpu_has(HWY_AVX2) || !cpu_has(HWY_AVX3)) return;
  std::vector<T> narrow, wide;
  {
    ScopedTarget scope(HWY_AVX2);
    narrow = compute();
  }
  {
    ScopedTarget scope(HWY_AVX3);
    wide = compute();
  }
  expect_same_bits(narrow, wide, what + " on AVX2 and AVX-512");
}

}  // namespace lockstep::test
