#pragma once
// Flat arrays that are copied or cleared. Only kernel files include this.

#include "runtime/cuda/for_each.h"

namespace lockstep::cuda {

template <typename From, typename To>
struct Copied {
  const From* from;
  To* to;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    float values[Count::value];
    load(from + i, values);
    store(values, to + i);
  }
};
// to[i] = from[i], rounded.
template <typename From, typename To>
void copy_flat(const From* from, To* to, int64_t n, Stream stream) {
  for_each_flat<kVectorWidth<To>>(
      n, is_aligned(from) && is_aligned(to), Copied<From, To>{from, to}, stream);
}

template <typename T>
struct Zeros {
  T* to;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    const float values[Count::value] = {};
    store(values, to + i);
  }
};
template <typename T>
void fill_zeros(T* to, int64_t n, Stream stream) {
  for_each_flat<kVectorWidth<T>>(n, is_aligned(to), Zeros<T>{to}, stream);
}

}  // namespace lockstep::cuda
