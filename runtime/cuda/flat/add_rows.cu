#include "runtime/cuda/flat/add_rows.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/kernel_tools.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;

template <typename T>
struct AddRows {
  const int32_t* ids;
  const T* rows;
  int64_t count, columns, begin, end;
  float* to;
};

// Block i adds all rows with the number of row i, if none before it has that number.
template <typename T>
__global__ void __launch_bounds__(kThreads) add_rows_kernel(AddRows<T> op) {
  __shared__ int32_t ids[kThreads];
  __shared__ bool found;
  const int64_t first = blockIdx.x, columns = op.columns;
  const int32_t id = op.ids[first];
  if ((id + 1) * columns <= op.begin || id * columns >= op.end) return;
  if (threadIdx.x == 0) found = false;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < first; i += kThreads) {
    if (op.ids[i] == id) found = true;
  }
  __syncthreads();
  if (found) return;
  float* const to = op.to + id * columns - op.begin;
  const auto mine = [&](int64_t column) {
    const int64_t element = id * columns + column;
    return column < columns && op.begin <= element && element < op.end;
  };
  for (int64_t left = 0; left < columns; left += kThreads) {
    const int64_t column = left + threadIdx.x;
    float sum = mine(column) ? to[column] : 0;
    for (int64_t tile = first / kThreads * kThreads; tile < op.count; tile += kThreads) {
      __syncthreads();
      if (tile + threadIdx.x < op.count) ids[threadIdx.x] = op.ids[tile + threadIdx.x];
      __syncthreads();
      const int64_t size = tile + kThreads < op.count ? kThreads : op.count - tile;
      for (int64_t k = first > tile ? first - tile : 0; k < size; ++k) {
        if (ids[k] == id && mine(column)) sum += to_float(op.rows[(tile + k) * columns + column]);
      }
    }
    if (mine(column)) to[column] = sum;
  }
}

}  // namespace

void add_rows(
    const collectives::AddedRows& rows, int64_t begin, int64_t end, float* to, Stream stream) {
  if (rows.count == 0) return;
  by_type(rows.dtype, [&]<typename T>() {
    const AddRows<T> op = {
        rows.ids, reinterpret_cast<const T*>(rows.rows), rows.count, rows.columns, begin, end, to};
    launch({{blocks_for(rows.count, 1), 1, 1}, {kThreads, 1, 1}, stream}, add_rows_kernel<T>, op);
  });
}

}  // namespace lockstep::cuda
