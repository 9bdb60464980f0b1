#include "runtime/graph/ops/rotary.h"

#include <cmath>

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/pixel_kernel.h"
#include "runtime/cuda/plan/indexing.h"

namespace lockstep::cuda {
namespace {

struct Frequencies {
  graph::RotaryAttributes attributes;
  int64_t time;
  double* frequencies;
  template <typename Count>
  __device__ void operator()(int64_t pair, Count) const {
    frequencies[pair] = graph::rotary_frequency(attributes, time, pair);
  }
};

struct Tables {
  const int32_t* positions;
  const double* frequencies;
  float *cosines, *sines;
  int64_t pairs;
  bool back;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    const int64_t row = i / pairs;
    const int64_t position = positions != nullptr ? positions[row] : row;
    const double angle = static_cast<double>(position) * frequencies[i - row * pairs];
    const double sine = std::sin(angle);
    cosines[i] = static_cast<float>(std::cos(angle));
    sines[i] = static_cast<float>(back ? -sine : sine);
  }
};

// Each thread handles N elements of a row that are copied, or N pairs of one head. A row's threads
// are numbered in this order: the pairs of all rotated heads, the unrotated ends of these heads,
// and the heads that are not rotated.
template <typename T>
struct Rotate {
  const T* x;
  T* y;
  const float *cosines, *sines;
  int64_t width, angle_rows;
  uint32_t pairs, head_size, heads;  // of the rotated heads
  bool interleaved;

  template <typename Count>
  __device__ void operator()(int64_t row, int64_t column, Count) const {
    constexpr int N = Count::value;
    const auto number = static_cast<uint32_t>(column);
    if (number < heads * pairs) {
      rotate<N>(row, number / pairs, number % pairs);
      return;
    }
    const uint32_t copied = copied_column(number - heads * pairs);
    float values[N];
    load(x + row * width + copied, values);
    store(values, y + row * width + copied);
  }

  // Column of the copied element with this number.
  __device__ __forceinline__ uint32_t copied_column(uint32_t number) const {
    const uint32_t end = head_size - 2 * pairs;  // per head
    if (number >= heads * end) return heads * head_size + number - heads * end;
    return number / end * head_size + 2 * pairs + number % end;
  }

  template <int N>
  __device__ __forceinline__ void rotate(int64_t row, uint32_t head, uint32_t pair) const {
    const int64_t begin = row * width + head * head_size;
    const int64_t angle = row % angle_rows * pairs + pair;
    float a[N], b[N], cosine[N], sine[N];
    load(cosines + angle, cosine);
    load(sines + angle, sine);
    load_pairs(x + begin, pair, a, b);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float first = a[i] * cosine[i] - b[i] * sine[i];
      b[i] = a[i] * sine[i] + b[i] * cosine[i];
      a[i] = first;
    }
    store_pairs(a, b, pair, y + begin);
  }

  template <int N>
  __device__ __forceinline__ void load_pairs(const T* head,
                                             uint32_t pair,
                                             float (&a)[N],
                                             float (&b)[N]) const {
    if (N > 1 && interleaved) {
      float both[2 * N];
      load(head + 2 * pair, both);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        a[i] = both[2 * i];
        b[i] = both[2 * i + 1];
      }
    } else {
      load(head + (interleaved ? 2 * pair : pair), a);
      load(head + (interleaved ? 2 * pair + 1 : pair + pairs), b);
    }
  }

  template <int N>
  __device__ __forceinline__ void store_pairs(const float (&a)[N],
                                              const float (&b)[N],
                                              uint32_t pair,
                                              T* head) const {
    if (N > 1 && interleaved) {
      float both[2 * N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        both[2 * i] = a[i];
        both[2 * i + 1] = b[i];
      }
      store(both, head + 2 * pair);
    } else {
      store(a, head + (interleaved ? 2 * pair : pair));
      store(b, head + (interleaved ? 2 * pair + 1 : pair + pairs));
    }
  }
};

void run(const graph::OpCall& call) {
  const Stream stream = stream_of(call);
  by_type<graph::Rotation>(call, [&]<typename T>(const auto& op) {
    const graph::RotaryAttributes& attributes = op.attributes;
    const int64_t pairs = op.pairs(), rotated = attributes.rotated_heads * pairs;
    for_each_flat<1>(pairs, false, Frequencies{attributes, op.time, op.frequencies}, stream);
    const Tables tables{op.positions, op.frequencies, op.cosines, op.sines, pairs, op.back};
    for_each_flat<1>(op.angle_rows * pairs, false, tables, stream);
    const Rotate<T> rotate{.x = op.x,
                           .y = op.y,
                           .cosines = op.cosines,
                           .sines = op.sines,
                           .width = op.width,
                           .angle_rows = op.angle_rows,
                           .pairs = static_cast<uint32_t>(pairs),
                           .head_size = static_cast<uint32_t>(attributes.head_size),
                           .heads = static_cast<uint32_t>(attributes.rotated_heads),
                           .interleaved = attributes.interleaved};
    const bool vectors =
        is_vectorizable<T>(attributes.head_size, {op.x, op.y}) && pairs % kVectorWidth<T> == 0;
    // If y is x, the copied elements are in place already.
    const int64_t columns = op.x == op.y ? rotated : op.width - rotated;
    for_each_pixel<kVectorWidth<T>>(op.rows, columns, vectors, rotate, stream);
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run, rotary_workspace, rotary_supports>(graph::OpKind::kRotary, "native"),
    exec::row<run, rotary_workspace, rotary_supports>(graph::OpKind::kRotaryBackward, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaRotary = kRows;

}  // namespace lockstep::cuda
