#include "runtime/cpu/device.h"

#include "runtime/cpu/backend.h"
#include "runtime/cpu/matmul/bf16_dot.h"
#include "runtime/cpu/simd_level.h"

namespace lockstep::cpu {
namespace {

class Cpu final : public exec::Device {
 public:
  const exec::OpSet& ops() const override { return op_set(); }
  std::string description() const override { return "cpu"; }
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

bool multiplies_bf16() {
  return simd_level() >= SimdLevel::kAvx512 && bf16_dot_kernels() != nullptr;
}

bool has_bf16_unit() { return simd_level() == SimdLevel::kAmx; }

}  // namespace lockstep::cpu
