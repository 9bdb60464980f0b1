#pragma once
// Who carries what ranks say to each other, and who computes with it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "collectives/communicator.h"
#include "collectives/power_sgd/power_sgd_math.h"
#include "collectives/reduce/sum_terms.h"
#include "collectives/shm/node_memory.h"
#include "runtime/base/exact_sum.h"

namespace lockstep {

// Arithmetic on slices, done by the backend that owns the memory. A device may only queue the work:
// it is done in the order of the calls, and what it writes can be read after synchronize().
class SliceMath {
 public:
  virtual ~SliceMath() = default;
  // out = the sum of terms of n numbers each; out may be one of their arrays, where they are
  // floats.
  virtual void tree_sum(const SumTerms& terms, float* out, int64_t n) = 0;
  // to = n floats, rounded to `wire`: kBF16 or kF16.
  virtual void pack(const float* from, DType wire, std::byte* to, int64_t n) = 0;
  // PowerSGD: a matrix (rows, columns) by way of left (rows, rank) and right (columns, rank). What
  // is written overlaps nothing that is read. left = matrix * right.
  virtual void power_sgd_left(const float* matrix,
                              const float* right,
                              const PowerSgdShape& shape,
                              float* left) = 0;
  // right = matrix^T * left
  virtual void power_sgd_right(const float* matrix,
                               const float* left,
                               const PowerSgdShape& shape,
                               float* right) = 0;
  // Columns of right (columns, rank) that are zeros become noise, the same everywhere.
  virtual void fill_zero_columns(float* right, int64_t columns, int rank) = 0;
  // Makes the columns of left (rows, rank) orthonormal, in order. One of which next to nothing is
  // left without its parts along those before it becomes zeros; what is not finite, NaN.
  virtual void orthonormalize(float* left, int64_t rows, int rank) = 0;
  // matrix = left * right^T
  virtual void power_sgd_product(const float* left,
                                 const float* right,
                                 const PowerSgdShape& shape,
                                 float* matrix) = 0;
  // matrix -= factor * product, n floats each.
  virtual void power_sgd_subtract(float* matrix, const float* product, float factor, int64_t n) = 0;
  virtual void fill_zeros(float* out, int64_t n) = 0;
  // Memory of the host stays as it is until the copy is done.
  virtual void copy(const std::byte* from, std::byte* to, size_t bytes) = 0;
  // *sum, in memory of allocate_host(), += the squares of n floats, in chunks from the first on.
  virtual void add_squares(const float* x, int64_t n, ExactSum* sum) = 0;
  // Returns when everything queued so far is done.
  virtual void synchronize() = 0;
  // Memory that host and device both reach, aligned to 64 bytes, owned by the device until it is
  // destroyed.
  virtual std::byte* allocate_host(size_t bytes) = 0;
  // n values in such memory.
  template <typename T>
  std::span<T> host_array(size_t n) {
    T* values = reinterpret_cast<T*>(allocate_host(n * sizeof(T)));
    std::uninitialized_value_construct_n(values, n);
    return {values, n};
  }
};

// Gradients and parameters lie in the backend's memory, the few numbers that a step ends with in
// the host's.
struct RankCommunicators {
  Communicator& slices;
  Communicator& control;
  NodeMemory* node = nullptr;  // where the topology shares memory: all gradients are its own(),
                               // and the parameters to gather its common()
};

}  // namespace lockstep
