#include "launcher/ranks/gpu_models.h"

#include <cctype>
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

// "rtx4090" for "RTX-4090".
std::string plain(std::string_view name) {
  std::string plain;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return plain;
}

double total_gib(const std::string& name) {
  for (const Model& model : kModels) {
    if (name == model.name) return model.gib;
  }
  double gib = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), gib);
  if (code == std::errc() && end == name.data() + name.size() && gib > kTakenGib && gib < 1e6)
    return gib;
  std::string names, meant;
  for (const Model& model : kModels) {
    names += fmt::format("{}, ", model.name);
    const bool begins = plain(model.name).starts_with(plain(name)) && name.size() > 3;
    if (plain(model.name) == plain(name) || begins)
      meant += fmt::format("{}{}", meant.empty() ? " did you mean " : " or ", model.name);
  }
  if (meant.empty() && code == std::errc() && plain(std::string(end)).starts_with('g'))
    meant = fmt::format(" did you mean {:g}", gib);  // 80GB
  throw ConfigError("--gpu: value is '{}';{}{} allowed: {}or its memory in GiB, above {}",
                    name,
                    meant,
                    meant.empty() ? "" : "?",
                    names,
                    kTakenGib);
}

}  // namespace

size_t run_bytes_of_gpu(const std::string& name) {
  return static_cast<size_t>((total_gib(name) - kTakenGib) * kGiB);
}

}  // namespace lockstep
