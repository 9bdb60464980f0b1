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

// The factors in a word.
template <Factors type>
float factor(uint32_t word, int half) {
  const auto bits = static_cast<uint16_t>(word >> 16 * half);
  if constexpr (type == Factors::kBFloat16) return to_float(BFloat16{bits});
  if constexpr (type == Factors::kFloat16) return to_float(Float16{bits});
  return std::bit_cast<float>(word & ~0x1fffu);  // the rest is ignored
}

// A lane's value, read as what it is made of.
struct [[gnu::may_alias]] Parts {
  uint32_t a[4], b[2];
};
static_assert(sizeof(Parts) == sizeof(LaneValue));

// `column` and the next one are the lane's.
template <Factors type>
void add_products(const Parts* lanes, unsigned row, unsigned column, float (&sums)[4]) {
  constexpr int kHalves = type == Factors::kTf32 ? 1 : 2;
  for (unsigned word = 0; word < 8; ++word) {
    const uint32_t* const left = lanes[4 * row + word % 4].a + word / 4 * 2;
    const uint32_t* const right = lanes[4 * column + word % 4].b + word / 4;
    const uint32_t* const next = lanes[4 * column + 4 + word % 4].b + word / 4;
    for (int half = 0; half < kHalves; ++half) {
      const float x = factor<type>(left[0], half), below = factor<type>(left[1], half);
      const float y = factor<type>(*right, half), beside = factor<type>(*next, half);
      sums[0] += x * y;
      sums[1] += x * beside;
      sums[2] += below * y;
      sums[3] += below * beside;
    }
  }
}

}  // namespace

// a has 16 rows of 8 words: word w of row r is a[r / 8 + w / 4 * 2] of lane 4 (r % 8) + w % 4. b
// has 8 columns of 8 words: word w of column c is b[w / 4] of lane 4 c + w % 4. The product's
// element in row r, column c is sums[r / 8 * 2 + c % 2] of lane 4 (r % 8) + c / 2.
void multiply_add(Factors type, float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const Parts mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const auto* const lanes =
      reinterpret_cast<const Parts*>(exchange(kAllLanes, std::bit_cast<LaneValue>(mine)));
  const unsigned row = lane() / 4, column = lane() % 4 * 2;
  switch (type) {
    case Factors::kBFloat16: return add_products<Factors::kBFloat16>(lanes, row, column, sums);
    case Factors::kFloat16: return add_products<Factors::kFloat16>(lanes, row, column, sums);
    case Factors::kTf32: return add_products<Factors::kTf32>(lanes, row, column, sums);
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
