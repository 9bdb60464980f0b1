#include "runtime/generate/weights.h"

#include "runtime/exec/host_copy.h"
#include "runtime/plan/memory_plan.h"
#include "runtime/train/number_types.h"
#include "runtime/train/state/initialize.h"

namespace lockstep::generate {

size_t weight_bytes(const plan::ParameterLayout& layout) {
  return static_cast<size_t>(layout.elements) * size_of(layout.compute);
}

std::byte* allocate_weights(exec::Backend& backend,
                            const plan::ParameterLayout& layout,
                            const ReadWeights& read) {
  std::byte* const parameters =
      backend.allocate(weight_bytes(layout), plan::name_of(plan::RowKind::kParameters));
  const std::vector<checkpoint::NamedSlice> slices = train::named_slices(layout);
  if (layout.compute == DType::kF32) {
    exec::HostCopy weights(backend, reinterpret_cast<float*>(parameters), layout.elements);
    read(slices, weights.data());
    weights.write();
    return parameters;
  }
  std::vector<float> floats(static_cast<size_t>(layout.elements));
  read(slices, floats.data());
  exec::HostCopyOf<std::byte> weights(
      backend, parameters, static_cast<int64_t>(weight_bytes(layout)));
  train::round_numbers(floats, layout.compute, weights.data());
  weights.write();
  return parameters;
}

}  // namespace lockstep::generate
