#include "runtime/cuda/plan/gpu_models.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace lockstep::cuda {
namespace {

// clang-format off
//   name                     GiB  cap. SMs   FP32   TF32    half  GB/s
constexpr GpuModel kModels[] = {
    {"GB300",                276.0, 103, 152,  80.0, 1250.0, 2500.0, 8000},
    {"B300",                 267.0, 103, 148,  75.0, 1125.0, 2250.0, 8000},
    {"GB200",                184.0, 100, 152,  80.0, 1250.0, 2500.0, 8000},
    {"B200",                 178.4, 100, 148,  75.0, 1100.0, 2250.0, 8000},
    {"H200",                 139.8,  90, 132,  67.0,  494.7,  989.4, 4800},
    {"H200-NVL",             139.8,  90, 132,  60.0,  417.5,  835.0, 4800},
    {"GH200",                 94.5,  90, 132,  67.0,  494.7,  989.4, 4000},
    {"H100",                  79.1,  90, 132,  67.0,  494.7,  989.4, 3350},
    {"H100-PCIe",             79.1,  90, 114,  51.0,  378.0,  756.0, 2000},
    {"H100-NVL",              93.1,  90, 132,  60.0,  417.5,  835.0, 3900},
    {"H800",                  79.1,  90, 132,  67.0,  494.7,  989.4, 3350},
    {"H800-PCIe",             79.1,  90, 114,  51.0,  378.0,  756.0, 2000},
    {"H20",                   95.0,  90,  78,  44.0,   74.0,  148.0, 4000},
    {"A100-80GB",             79.1,  80, 108,  19.5,  156.0,  312.0, 2039},
    {"A100-80GB-PCIe",        79.1,  80, 108,  19.5,  156.0,  312.0, 1935},
    {"A100-40GB",             39.4,  80, 108,  19.5,  156.0,  312.0, 1555},
    {"A800-80GB",             79.1,  80, 108,  19.5,  156.0,  312.0, 2039},
    {"A800-80GB-PCIe",        79.1,  80, 108,  19.5,  156.0,  312.0, 1935},
    {"A30",                   23.5,  80,  56,  10.3,   82.0,  165.0,  933},
    {"A40",                   44.4,  86,  84,  37.4,   74.8,  149.7,  696},
    {"A10",                   22.0,  86,  72,  31.2,   62.5,  125.0,  600},
    {"A10G",                  22.0,  86,  80,  35.0,   35.0,   70.0,  600},
    {"A16",                   14.5,  86,  10,   4.5,    9.0,   17.9,  200},
    {"L40S",                  44.4,  89, 142,  91.6,  183.0,  362.0,  864},
    {"L40",                   44.4,  89, 142,  90.5,   90.5,  181.0,  864},
    {"L20",                   44.4,  89,  92,  59.8,   59.8,  119.5,  864},
    {"L4",                    22.0,  89,  58,  30.3,   60.0,  121.0,  300},
    {"RTX-PRO-6000-Server",   94.9, 120, 188, 120.0,  240.0,  480.0, 1597},
    {"RTX-PRO-6000-Workstation", 94.9, 120, 188, 125.0, 251.9, 503.8, 1792},
    {"RTX-PRO-6000-Max-Q",    94.9, 120, 188, 110.0,  219.4,  438.9, 1792},
    {"RTX-6000-Ada",          44.4,  89, 142,  91.1,  182.1,  364.2,  960},
    {"RTX-A6000",             44.4,  86,  84,  38.7,   77.4,  154.8,  768},
    {"RTX-5090",              31.3, 120, 170, 104.8,  104.8,  209.5, 1792},
    {"RTX-5080",              15.4, 120,  84,  56.3,   56.3,  112.6,  960},
    {"RTX-4090",              23.5,  89, 128,  82.6,   82.6,  165.2, 1008},
    {"RTX-4080",              15.6,  89,  76,  48.7,   48.7,   97.5,  717},
    {"RTX-4070",              11.6,  89,  46,  29.1,   29.1,   58.3,  504},
    {"RTX-3090",              23.5,  86,  82,  35.6,   35.6,   71.0,  936}};
// clang-format on

// Words that make another model of a name, unless the model's own name has them.
constexpr std::string_view kVariants[] = {
    "ti", "super", "d", "laptop", "mobile", "max", "mig", "3e", "ws"};

using Words = std::vector<std::string>;

// The words of a name in lower case: the runs of letters and digits.
Words words_of(std::string_view name) {
  Words words;
  bool within = false;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) == 0) {
      within = false;
      continue;
    }
    if (!within) words.emplace_back();
    within = true;
    words.back() += static_cast<char>(std::tolower(byte));
  }
  return words;
}

bool has(const Words& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

}  // namespace

std::span<const GpuModel> gpu_models() { return kModels; }

const GpuModel* find_gpu_model(std::string_view driver_name) {
  const Words words = words_of(driver_name);
  const GpuModel* best = nullptr;
  Words best_words;
  for (const GpuModel& model : kModels) {
    const Words own = words_of(model.name);
    const bool fits =
        std::ranges::all_of(own, [&](const std::string& word) { return has(words, word); });
    if (!fits || own.size() <= best_words.size()) continue;
    best = &model;
    best_words = own;
  }
  for (const std::string_view variant : kVariants) {
    if (has(words, variant) && !has(best_words, variant)) return nullptr;
  }
  return best;
}

double peak_flops(const GpuModel& model, DType compute, bool tf32) {
  if (compute != DType::kF32) return model.half * 1e12;
  return (tf32 ? model.tf32 : model.fp32) * 1e12;
}

}  // namespace lockstep::cuda
