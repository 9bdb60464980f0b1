#include "runtime/cpu/device.h"

#include "runtime/cpu/backend.h"
#include "runtime/cpu/matmul/bf16_dot.h"
#include "runtime/cpu/matmul/tile_units.h"
#include "runtime/cpu/simd_level.h"

namespace lockstep::cpu {
namespace {

class Cpu final : public exec::Device {
 public:
  const exec::OpSet& ops() const override { return op_set(); }
  std::string description() const override { return "cpu"; }
  // Products of floats have the same bits on all processors.
  std::string bits(DType compute) const override {
    if (compute != DType::kBF16) return "";
    return tiles::available() ? "products of bfloat16 on AMX" : "products of bfloat16 without AMX";
  }
  std::string choice_of_bits() const override {
    return tiles::available() ? "LOCKSTEP_SIMD=AVX512 leaves out AMX" : "";
  }
  size_t free_bytes() const override { return 0; }
  std::unique_ptr<exec::Backend> make_backend(const exec::BackendRequest&) override {
    return cpu::make_backend();
  }
  collectives::Communicator& connect(collectives::Communicator& control,
                                     exec::Backend&,
                                     const collectives::Topology&,
                                     const exec::ConnectRequest&) override {
    return control;
  }
};

}  // namespace

std::unique_ptr<exec::Device> make_device() { return std::make_unique<Cpu>(); }

std::string name_of_bf16_products() {
  if (tiles::available()) return "AMX";
  const bool dots = simd_level() >= SimdLevel::kAvx512 && bf16_dot_kernels() != nullptr;
  return dots ? "AVX512-BF16" : "";
}

bool has_bf16_unit() { return simd_level() == SimdLevel::kAmx; }

}  // namespace lockstep::cpu
