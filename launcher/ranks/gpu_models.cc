#include "launcher/ranks/gpu_models.h"

#include <charconv>

#include "runtime/base/error.h"

namespace lockstep {
namespace {

// The driver's total in GiB, with error correction on.
struct Model {
  const char* name;
  double gib;
};
constexpr Model kModels[] = {{"B200", 178.4},
                             {"H200", 139.8},
                             {"H100", 79.1},
                             {"H100-NVL", 93.1},
                             {"A100-80GB", 79.1},
                             {"A100-40GB", 39.4},
                             {"L40S", 44.4},
                             {"A40", 44.4},
                             {"A30", 23.5},
                             {"A10", 22.0},
                             {"L4", 22.0},
                             {"RTX-4090", 23.5}};

// Used by the context and by the kernels and buffers of cuBLASLt, cuDNN and NCCL.
constexpr double kTakenGib = 1.5;
constexpr double kGiB = 1024.0 * 1024 * 1024;

double total_gib(const std::string& name) {
  for (const Model& model : kModels) {
    if (name == model.name) return model.gib;
  }
  double gib = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), gib);
  if (code == std::errc() && end == name.data() + name.size() && gib > kTakenGib && gib < 1e6)
    return gib;
  std::string names;
  for (const Model& model : kModels) names += fmt::format("{}, ", model.name);
  throw ConfigError(
      "--gpu: value is {}; allowed: {}or its memory in GiB, above {}", name, names, kTakenGib);
}

}  // namespace

size_t run_bytes_of_gpu(const std::string& name) {
  return static_cast<size_t>((total_gib(name) - kTakenGib) * kGiB);
}

}  // namespace lockstep
