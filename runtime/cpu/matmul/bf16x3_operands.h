#pragma once
// Dense matrices as operands of multiply_rectangle() (bf16x3_product.h).

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "runtime/base/error.h"
#include "runtime/cpu/matmul/bf16x3_product.h"
#include "runtime/cpu/matmul/gemm.h"

namespace lockstep::cpu {

// The range of the depth that some chunks cover.
inline Range chunk_depth(Range chunks, int64_t depth) {
  return {chunks.begin * kTileDepth, std::min(depth, chunks.end * kTileDepth)};
}

// Pointers to the first `count` <= kMax rows from `data` on; the rest are null.
template <int64_t kMax, typename T>
struct RowPointers {
  RowPointers(const T* data, int64_t stride, int64_t count) {
    for (int64_t i = 0; i < kMax; ++i) rows[i] = i < count ? data + i * stride : nullptr;
  }
  const T* rows[kMax];
};

// The elements of an operand, which are of type T.
template <typename T>
const T* elements(const GemmOperand& operand) {
  if constexpr (std::is_same_v<T, float>) {
    return operand.data;
  } else {
    return operand.halves;
  }
}

template <typename T>
struct DenseA {
  using Number = T;

  bool as_rows() const { return !a.transposed; }

  int64_t list(Range rows,
               Range chunks,
               const T** pointers,
               typename TileKernels<T>::Split* tiles,
               uint16_t* to) const {
    for (int64_t i = 0; i < kTileEdge; ++i)
      pointers[i] = i < rows.size() ? elements<T>(a.at(rows.begin + i, 0)) : nullptr;
    const Range k = chunk_depth(chunks, depth);
    *tiles = {pointers, k.begin, k.size(), to, kTileElems<T>};
    return 1;
  }

  void pack(const TileKernels<T>& kernels, Range rows, Range chunks, uint16_t* to) const {
    const Range k = chunk_depth(chunks, depth);
    for (int64_t begin = k.begin; begin < k.end; begin += kTileDepth, to += kTileElems<T>) {
      // Prefetches rows of a later chunk, at these columns.
      for (int64_t i = 2 * kTileDepth; i < 3 * kTileDepth; ++i)
        __builtin_prefetch(elements<T>(a.at(rows.begin, std::min(begin + i, depth - 1))), 0, 2);
      const RowPointers<kTileDepth, T> some(
          elements<T>(a.at(rows.begin, begin)), a.stride, std::min(kTileDepth, k.end - begin));
      kernels.pack_depth_as_rows(some.rows, rows.size(), to);
    }
  }
  GemmOperand a;
  int64_t depth;
};

template <typename T>
struct DenseB {
  bool as_rows() const { return !b.transposed; }

  int64_t list(Range columns,
               Range chunks,
               const T** pointers,
               typename TileKernels<T>::Split* tiles,
               uint16_t* to) const {
    int64_t count = 0;
    for (int64_t k = chunks.begin; k < chunks.end; ++k, pointers += kTileDepth) {
      for (int64_t i = 0; i < kTileDepth; ++i) {
        const int64_t row = k * kTileDepth + i;
        pointers[i] = row < depth ? elements<T>(b.at(row, 0)) : nullptr;
      }
      for (int64_t j = columns.begin; j < columns.end; j += kTileEdge, to += kTileElems<T>)
        tiles[count++] = {pointers, j, std::min(kTileEdge, columns.end - j), to, 0};
    }
    return count;
  }

  RowFetcher fetcher(Range columns, Range chunks, int64_t calls) const {
    const Range k = chunk_depth(chunks, depth);
    return {elements<T>(b.at(k.begin, columns.begin)), b.stride, k.size(), columns.size(), calls};
  }

  void pack(const TileKernels<T>& kernels,
            Range columns,
            Range chunks,
            uint16_t* to,
            int64_t stride) const {
    const Range k = chunk_depth(chunks, depth);
    if (b.transposed) {
      const RowPointers<kTileEdge, T> some(
          elements<T>(b.at(k.begin, columns.begin)), b.stride, columns.size());
      return kernels.pack_rows_as_columns(some.rows, k.size(), to, stride);
    }
    for (int64_t begin = k.begin; begin < k.end; begin += kTileDepth, to += stride) {
      const RowPointers<kTileDepth, T> some(
          elements<T>(b.at(begin, columns.begin)), b.stride, std::min(kTileDepth, k.end - begin));
      kernels.pack_depth(some.rows, columns.size(), to);
    }
  }
  GemmOperand b;
  int64_t depth;
};

// A dense result without an epilogue.
struct DenseC {
  float* row(int64_t i) const { return data + i * c_stride; }
  int64_t stride() const { return c_stride; }
  void finish(Range, Range) const {}
  float* data;
  int64_t c_stride;
};

// gemm() of gemm.h by tiles, for operands of type T.
template <typename T>
void multiply_matrices(const Gemm& p, void* workspace) {
  LOCKSTEP_CHECK(reinterpret_cast<uintptr_t>(workspace) % 64 == 0);
  if (p.rows == 0 || p.columns == 0) return;
  if (p.depth == 0) {
    for (int64_t i = 0; i < p.rows && !p.accumulate; ++i)
      std::memset(p.c + i * p.c_stride, 0, static_cast<size_t>(p.columns) * sizeof(float));
    return;
  }
  multiply_all(DenseA<T>{p.a, p.depth},
               DenseB<T>{p.b, p.depth},
               DenseC{p.c, p.c_stride},
               p.rows,
               p.columns,
               ceil_div(p.depth, kTileDepth),
               p.accumulate,
               workspace);
}

}  // namespace lockstep::cpu
