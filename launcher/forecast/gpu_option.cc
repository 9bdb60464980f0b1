#include "launcher/forecast/gpu_option.h"

#include <cctype>
#include <charconv>

#include "runtime/base/error.h"
#include "runtime/cuda/plan/gpu_models.h"

namespace lockstep::launcher {
namespace {

// Used by the context and by the kernels and buffers of cuBLASLt, cuDNN and NCCL.
constexpr double kTakenGib = 1.5;
constexpr double kMaxGib = 1000;  // so that 4090 is no memory
constexpr double kGiB = 1024.0 * 1024 * 1024;

// "rtx4090" for "RTX-4090".
std::string plain(std::string_view name) {
  std::string plain;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return plain;
}

PlannedGpu with_memory(const cuda::GpuModel* model, double gib) {
  return {model, static_cast<size_t>((gib - kTakenGib) * kGiB)};
}

}  // namespace

PlannedGpu planned_gpu(const std::string& name) {
  for (const cuda::GpuModel& model : cuda::gpu_models()) {
    if (name == model.name) return with_memory(&model, model.gib);
  }
  if (name.starts_with("NVIDIA ")) {
    if (const cuda::GpuModel* model = cuda::find_gpu_model(name))
      return with_memory(model, model->gib);
  }
  double gib = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), gib);
  const bool is_number = code == std::errc() && end == name.data() + name.size();
  if (is_number && gib > kTakenGib && gib <= kMaxGib) return with_memory(nullptr, gib);
  std::string names, meant;
  for (const cuda::GpuModel& model : cuda::gpu_models()) {
    names += fmt::format("{}, ", model.name);
    const std::string known = plain(model.name), given = plain(name);
    const bool part =
        name.size() > 3 && (known.starts_with(given) || (is_number && known.ends_with(given)));
    if (known == given || part)
      meant += fmt::format("{}{}", meant.empty() ? " did you mean " : " or ", model.name);
  }
  if (const cuda::GpuModel* model = cuda::find_gpu_model(name); meant.empty() && model != nullptr)
    meant = fmt::format(" did you mean {}", model->name);  // H100 SXM
  if (meant.empty() && code == std::errc() && plain(std::string(end)).starts_with('g'))
    meant = fmt::format(" did you mean {:g}", gib);  // 80GB
  throw ConfigError(
      "--gpu: value is '{}';{}{} allowed: {}or its memory in GiB, above {} and at most {}",
      name,
      meant,
      meant.empty() ? "" : "?",
      names,
      kTakenGib,
      kMaxGib);
}

}  // namespace lockstep::launcher
