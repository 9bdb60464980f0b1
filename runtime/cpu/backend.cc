#include "runtime/cpu/backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/base/time.h"
#include "runtime/cpu/flat/adafactor.h"
#include "runtime/cpu/flat/add_rows.h"
#include "runtime/cpu/flat/content_hash.h"
#include "runtime/cpu/flat/optimizers.h"
#include "runtime/cpu/flat/power_sgd_products.h"
#include "runtime/cpu/flat/squares.h"
#include "runtime/cpu/flat/tree_sum.h"
#include "runtime/cpu/matmul/newton_schulz.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/peak.h"

namespace lockstep::cpu {
namespace {

// Memory from mmap(), on huge pages if available, because large products touch thousands of pages.
// Every page is touched here, so that a lack of memory is found at the start and not in the middle
// of a run.
class Mapping {
 public:
  Mapping(size_t bytes, const char* what)
      : bytes_((bytes + kHugePage - 1) / kHugePage * kHugePage) {
    // One huge page extra, so that the memory can begin at a huge-page boundary.
    mapped_ = bytes_ + kHugePage;
    base_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) throw MemoryError("cannot allocate {} bytes for {}", bytes, what);
    const auto address = reinterpret_cast<uintptr_t>(base_);
    data_ = reinterpret_cast<std::byte*>((address + kHugePage - 1) / kHugePage * kHugePage);
    ::madvise(data_, bytes_, MADV_HUGEPAGE);
    parallel_for(static_cast<int64_t>(bytes), int64_t{kHugePage}, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i += kPage) data_[i] = std::byte{0};
    });
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        data_(other.data_),
        bytes_(other.bytes_),
        mapped_(other.mapped_) {}
  ~Mapping() {
    if (base_ != nullptr) ::munmap(base_, mapped_);
  }
  std::byte* data() const { return data_; }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
  static constexpr int64_t kPage = 4096;
  void* base_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  size_t mapped_ = 0;
};

// Runs the work anew each time, because recording brings no gain on the CPU.
class PlainWork final : public exec::RepeatedWork {
 public:
  void run(const std::function<void()>& work) override { work(); }
};

class PlainUpdate final : public exec::FlatUpdate {
 public:
  PlainUpdate(std::span<const exec::OptimizerUpdate> updates,
              std::vector<exec::OptimizerSlice> slices)
      : updates_(updates), slices_(std::move(slices)) {}
  void load() override {}
  void run() override {
    for (const exec::OptimizerSlice& slice : slices_)
      optimizer_update(updates_[slice.group], slice);
  }

 private:
  std::span<const exec::OptimizerUpdate> updates_;
  std::vector<exec::OptimizerSlice> slices_;
};

// The CPU reads the host's memory directly, so copies are made at once.
class PlainUploads final : public exec::BatchUploads {
 public:
  void copy_ahead(const std::byte* from, std::byte* to, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void take(const std::byte* from, std::byte* to, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void finish() override {}
};

class CpuBackend final : public exec::Backend {
 public:
  const exec::OpSet& ops() const override { return op_set(); }

  void reserve(size_t) override {}
  std::byte* allocate(size_t bytes, const char* what, Place) override {
    allocated_bytes_ += bytes;
    return mappings_.emplace_back(bytes, what).data();
  }
  size_t allocated_bytes() const override { return allocated_bytes_; }

  void begin_lane(const graph::LaneContext&, int) override {}
  void select_lane(int) override {}
  void* launch_context() override { return nullptr; }
  std::unique_ptr<exec::FlatUpdate> flat_update(std::span<const exec::OptimizerUpdate> updates,
                                                std::vector<exec::OptimizerSlice> slices,
                                                bool /*gated*/) override {
    return std::make_unique<PlainUpdate>(updates, std::move(slices));
  }

  exec::UpdateGate* update_gate() override { return nullptr; }

  void newton_schulz(float* matrix,
                     const exec::NewtonSchulz& shape,
                     std::byte* workspace) override {
    ExactSum squares;
    cpu::add_squares(matrix, shape.elements(), &squares);
    cpu::newton_schulz(matrix, shape, std::sqrt(squares.value()), workspace);
  }

  void add_factored_squares(const exec::FactoredPiece& piece,
                            const exec::FactoredStep* step) override {
    cpu::add_factored_squares(piece, *step);
  }
  void factored_directions(const exec::FactoredPiece& piece,
                           const exec::FactoredStep* step) override {
    cpu::factored_directions(piece, *step);
  }

  double peak_flops() override { return cpu::peak_flops() * compute_threads(); }

  void tree_sum(const collectives::TreeSumTerms& terms, float* out, int64_t n) override {
    cpu::tree_sum(terms, out, n);
  }
  void pack(const float* from, DType wire, std::byte* to, int64_t n) override {
    cpu::pack(from, wire, to, n);
  }
  void add_rows(const collectives::AddedRows& rows,
                int64_t begin,
                int64_t end,
                float* to) override {
    cpu::add_rows(rows, begin, end, to);
  }
  void fill_zeros(float* out, int64_t n) override { std::fill_n(out, n, 0.0f); }

  void copy(const std::byte* from, std::byte* to, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  exec::BatchUploads& uploads() override { return uploads_; }
  collectives::PowerSgdProducts& power_sgd() override { return power_sgd_; }

  void hash(
      const std::byte* x, DType dtype, int64_t n, uint64_t first_index, ContentHash* out) override {
    LOCKSTEP_CHECK(dtype == DType::kF32 || dtype == DType::kBF16);
    *out = dtype == DType::kF32
               ? content_hash(reinterpret_cast<const float*>(x), n, first_index)
               : content_hash(reinterpret_cast<const BFloat16*>(x), n, first_index);
  }

  std::unique_ptr<exec::RepeatedWork> repeated_work() override {
    return std::make_unique<PlainWork>();
  }

  void mark(Mark mark) override { marks_[static_cast<size_t>(mark)] = now_ms(); }
  double reduce_ms() override { return marks_[1] - marks_[0]; }

  std::byte* allocate_host(size_t bytes) override {
    return host_memory_.emplace_back(bytes / sizeof(Line) + 1)[0].bytes;
  }
  void synchronize() override {}

  void add_squares(const float* x, int64_t n, ExactSum* sum, uint32_t* bits) override {
    cpu::add_squares(x, n, sum, bits);
  }
  void add_bits(const std::byte* x, DType dtype, int64_t n, uint32_t* bits) override {
    *bits += size_of(dtype) == sizeof(uint16_t)
                 ? bit_checksum(reinterpret_cast<const uint16_t*>(x), n)
                 : bit_checksum(reinterpret_cast<const float*>(x), n);
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  PlainUploads uploads_;
  CpuPowerSgdProducts power_sgd_;
  std::deque<std::vector<Line>> host_memory_;
  std::vector<Mapping> mappings_;
  size_t allocated_bytes_ = 0;
  double marks_[2] = {};
};

}  // namespace

const exec::OpSet& op_set() {
  static constexpr DType kTypes[] = {DType::kF32, DType::kBF16};
  static const exec::OpSet ops = {
      "cpu", all_implementations(), kTypes, false, 0, 1, 4096, SIZE_MAX, newton_schulz_bytes};
  return ops;
}

std::unique_ptr<exec::Backend> make_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace lockstep::cpu
