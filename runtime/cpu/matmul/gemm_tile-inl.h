// The tiles of matrix products, defined for each instruction set in gemm_tile.cc. Include it only
// from a .cc file that Highway's foreach_target.h includes repeatedly.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_GEMM_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_GEMM_TILE_INL_H
#undef LOCKSTEP_RUNTIME_CPU_GEMM_TILE_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_GEMM_TILE_INL_H
#endif

#include <algorithm>
#include <cstddef>

#include "hwy/highway.h"
#include "runtime/cpu/matmul/gemm.h"
#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// The tile fills the register file: 12 x 2 accumulators of the 32 vectors of AVX-512, 6 x 2 of the
// 16 of AVX2.
constexpr size_t kTileRows = kVecLanes == 16 ? 12 : kVecLanes == 8 ? 6 : 4;
constexpr size_t kTileVectors = 2;
constexpr size_t kPanel = kTileVectors * kVecLanes;
static_assert(kRowUnit % kTileRows == 0 && kMaxPanel % kPanel == 0);

// Steps of a tile's depth between prefetches of what is needed next: many, because what interrupts
// the loop over the depth costs some 10 cycles, but few enough to spread the prefetches.
constexpr size_t kFetchSteps = kVecLanes == 16 ? 16 : 128;
constexpr size_t fetches_of(size_t depth) { return ceil_div(depth, kFetchSteps); }

// Prefetches memory that is needed next, one or a few cache lines at a time between steps that
// compute on other memory. So nothing waits for main memory, and there are never too many lines in
// flight.
class Prefetcher {
 public:
  Prefetcher() = default;
  // Prefetches the part (rows, columns) of an operand, spread over `calls` calls of run(). No size
  // is 0.
  HWY_INLINE Prefetcher(GemmOperand operand, size_t rows, size_t columns, size_t calls)
      : next_(operand.halves != nullptr ? bytes(operand.halves) : bytes(operand.data)),
        row_(next_),
        rows_left_(operand.transposed ? columns : rows) {
    const size_t size = operand.halves != nullptr ? sizeof(BFloat16) : sizeof(float);
    const size_t row_bytes = (operand.transposed ? rows : columns) * size;
    stride_ = static_cast<size_t>(operand.stride) * size;
    // A row that does not begin at a line boundary may end one line later.
    const bool aligned = reinterpret_cast<uintptr_t>(row_) % kLine == 0 && stride_ % kLine == 0;
    row_lines_ = lines_left_ = (row_bytes - 1) / kLine + (aligned ? 1 : 2);
    lines_ = ceil_div(rows_left_ * row_lines_, calls);
  }

  // The same for another part of the operand, which begins at `data`.
  HWY_INLINE Prefetcher at(const float* data) const {
    Prefetcher result = *this;
    result.next_ = result.row_ = bytes(data);
    return result;
  }

  // kWrite: for memory that will be written, into the first-level cache; otherwise into the
  // second-level one.
  template <bool kWrite = false>
  HWY_INLINE void run() {
    for (size_t line = 0; line < lines_; ++line) {
      __builtin_prefetch(next_, kWrite, kWrite ? 3 : 2);
      next_ += kLine;
      if (HWY_UNLIKELY(--lines_left_ == 0)) {
        if (--rows_left_ == 0) lines_ = 0;
        next_ = row_ += stride_;
        lines_left_ = row_lines_;
      }
    }
  }

 private:
  static constexpr size_t kLine = 64;  // bytes
  static HWY_INLINE const char* bytes(const void* data) { return static_cast<const char*>(data); }

  const char *next_ = nullptr, *row_ = nullptr;
  size_t stride_ = 0;
  size_t rows_left_ = 0, lines_left_ = 0;  // lines: of the current row
  size_t row_lines_ = 0;
  size_t lines_ = 0;  // per call; 0 when all are fetched
};

// Packs a full panel of B (not transposed), a few rows at a time between steps that compute on
// other memory. Rows are fetched shortly before: if they are a page apart, those of a whole panel
// compete for the same cache lines, and many would be gone before they are read.
class PanelPacker {
 public:
  PanelPacker() = default;
  // Packs rows [0, depth) of b as pack_panel() does, spread over `calls` calls of run().
  HWY_INLINE PanelPacker(GemmOperand b, size_t depth, float* to, size_t calls)
      : b_(b), to_(to), rows_left_(depth), rows_(ceil_div(depth, calls)) {
    for (size_t k = 0; k < std::min(kAhead, depth); ++k) fetch(k);
  }

  HWY_INLINE void run() {
    for (size_t n = std::min(rows_, rows_left_); n > 0; --n) {
      fetch(kAhead);
      HWY_UNROLL(4)
      for (size_t v = 0; v < kPanel; v += kVecLanes) {
        const Vec row = b_.halves != nullptr ? FullVector().load(b_.halves + v)
                                             : FullVector().load(b_.data + v);
        hn::StoreU(row, F32(), to_ + v);
      }
      b_ = b_.at(1, 0);
      to_ += kPanel;
      --rows_left_;
    }
  }

 private:
  static constexpr size_t kAhead = 6;  // rows
  HWY_INLINE void fetch(size_t row) const {
    const GemmOperand from = b_.at(row, 0);
    const bool halves = from.halves != nullptr;
    const char* const first = halves ? reinterpret_cast<const char*>(from.halves)
                                     : reinterpret_cast<const char*>(from.data);
    const size_t bytes = kPanel * (halves ? sizeof(BFloat16) : sizeof(float));
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(first + at);
    __builtin_prefetch(first + bytes - 1);  // a row that does not begin at a line boundary
  }

  GemmOperand b_;
  float* to_ = nullptr;
  size_t rows_left_ = 0, rows_ = 0;  // rows_: per call
};

// A column of tiles: c(tiles * rows, vectors * kVecLanes) = (accumulate ? c : 0) + a b.
struct Tiles {
  size_t tiles;
  size_t depth;
  const float* a;  // element (i, k) is a[i * a_stride + k], or a[k * a_stride + i] if depth-major
  size_t a_stride;
  size_t a_step;   // between consecutive tiles
  const float* b;  // row k is at b + k * b_stride
  size_t b_stride;
  float* c;
  size_t c_stride;
  bool accumulate;
  // Each runs fetches_of(depth) times per tile. `next_other`: rows of a during the first panel,
  // then the memory that the next panel is packed to.
  Prefetcher *next_panel, *next_other;
  // What the finish of the sums reads and writes; null if there is none.
  Prefetcher *reads = nullptr, *writes = nullptr;
  PanelPacker* packer = nullptr;  // of the next panel
};

using TileKernel = void (*)(const Tiles&);

// The kernel for tiles of `rows` rows and `vectors` vectors.
TileKernel tile_kernel(bool depth_major, size_t vectors, size_t rows);

// Runs one tile whose last columns do not exist in c: computes in a buffer and copies the columns
// that exist.
void multiply_edge_tile(TileKernel kernel, Tiles tile, size_t rows, size_t columns);

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_GEMM_TILE_INL_H
