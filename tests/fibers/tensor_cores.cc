// Tensor cores on the host: the warp's lanes give each other their parts of the matrices, and each
// lane adds up its own elements of the product. Which lane has which elements is NVIDIA's
// definition (PTX ISA, "Matrix Fragments for mma.m16n8k16" and "mma.m16n8k8", and "ldmatrix"),
// written down here a second time, apart from fragments.h. Products are exact in float and are
// added from the first to the last; a GPU adds them in an order of its own.
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime/base/half.h"
#include "tests/fibers/cuda_on_host.h"

namespace lockstep::fibers {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

float factor(Factors type, uint32_t word, int half) {
  switch (type) {
    case Factors::kBFloat16: return to_float(BFloat16{static_cast<uint16_t>(word >> 16 * half)});
    case Factors::kFloat16: return to_float(Float16{static_cast<uint16_t>(word >> 16 * half)});
    case Factors::kTf32: return std::bit_cast<float>(word & ~0x1fffu);  // the rest is ignored
  }
  std::abort();
}

struct Parts {
  uint32_t a[4], b[2];
};
Parts parts_of(const LaneValue& value) {
  Parts parts;
  static_assert(sizeof(parts) == sizeof(value));
  std::memcpy(&parts, &value, sizeof(parts));
  return parts;
}

}  // namespace

// a has 16 rows of 8 words: word w of row r is a[r / 8 + w / 4 * 2] of lane 4 (r % 8) + w % 4. b
// has 8 columns of 8 words: word w of column c is b[w / 4] of lane 4 c + w % 4. The product's
// element in row r, column c is sums[r / 8 * 2 + c % 2] of lane 4 (r % 8) + c / 2.
void multiply_add(Factors type, float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  LaneValue value;
  const Parts mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  std::memcpy(&value, &mine, sizeof(value));
  const LaneValue* const lanes = exchange(kAllLanes, value);
  const unsigned row = lane() / 4, column = lane() % 4 * 2;
  const int halves = type == Factors::kTf32 ? 1 : 2;
  for (unsigned word = 0; word < 8; ++word) {
    const Parts left = parts_of(lanes[4 * row + word % 4]);
    for (unsigned c = 0; c < 2; ++c) {
      const Parts right = parts_of(lanes[4 * (column + c) + word % 4]);
      for (int half = 0; half < halves; ++half) {
        const float y = factor(type, right.b[word / 4], half);
        for (unsigned r = 0; r < 2; ++r)
          sums[2 * r + c] += factor(type, left.a[r + word / 4 * 2], half) * y;
      }
    }
  }
}

// Lane 8 m + r has the address of row r of matrix m, which is 8 rows of 16 bytes. Each lane gets
// words[m] of each matrix m: word lane % 4 of row lane / 4; transposed, the 16-bit elements of
// column lane / 4 in rows 2 (lane % 4) and the next one.
void load_matrices(const void* row, bool transposed, uint32_t (&words)[4]) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
    std::fprintf(stderr, "a row of a matrix in shared memory does not begin at 16 bytes\n");
    std::abort();
  }
  const LaneValue* const lanes = exchange(kAllLanes, {{reinterpret_cast<uintptr_t>(row)}});
  const auto row_of = [&](unsigned matrix, unsigned r) {
    return reinterpret_cast<const std::byte*>(lanes[8 * matrix + r].words[0]);
  };
  for (unsigned m = 0; m < 4; ++m) {
    if (!transposed) {
      std::memcpy(&words[m], row_of(m, lane() / 4) + lane() % 4 * 4, 4);
      continue;
    }
    uint16_t pair[2];
    for (unsigned k = 0; k < 2; ++k)
      std::memcpy(&pair[k], row_of(m, lane() % 4 * 2 + k) + lane() / 4 * 2, 2);
    words[m] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
  }
}

}  // namespace lockstep::fibers
