#include "runtime/cpu/simd_level.h"

#include <hwy/targets.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/cpu/matmul/bf16x3.h"

namespace lockstep::cpu {
namespace {

constexpr const char* kVariable = "LOCKSTEP_SIMD";

// The levels above the baseline that the processor has and kernels are compiled for.
std::vector<SimdLevel> find_usable_levels() {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  std::vector<SimdLevel> levels;
  if ((targets & HWY_AVX2) != 0) levels.push_back(SimdLevel::kAvx2);
  if ((targets & HWY_AVX3) != 0) levels.push_back(SimdLevel::kAvx512);
  if (amx_bf16x3_kernels() != nullptr) levels.push_back(SimdLevel::kAmx);
  return levels;
}

// Found once, before limit_kernels() leaves some out.
const std::vector<SimdLevel>& usable_levels() {
  static const std::vector<SimdLevel> levels = find_usable_levels();
  return levels;
}

SimdLevel limit_kernels() {
  const std::vector<SimdLevel>& usable = usable_levels();
  const SimdLevel level = parse_simd_level(std::getenv(kVariable), usable);
  // Highway numbers an architecture's targets from the widest vectors down.
  if (level == SimdLevel::kAvx2 && level != usable.back()) hwy::DisableTargets(HWY_AVX2 - 1);
  return level;
}

}  // namespace

const char* name_of(SimdLevel level) {
  switch (level) {
    case SimdLevel::kBaseline: break;
    case SimdLevel::kAvx2: return "AVX2";
    case SimdLevel::kAvx512: return "AVX512";
    case SimdLevel::kAmx: return "AMX";
  }
  return "baseline";
}

SimdLevel parse_simd_level(const char* value, std::span<const SimdLevel> usable) {
  if (value == nullptr || *value == '\0')
    return usable.empty() ? SimdLevel::kBaseline : usable.back();
  std::string allowed;
  for (const SimdLevel level : usable) {
    if (std::string_view(value) == name_of(level)) return level;
    append_item(allowed, name_of(level));
  }
  throw ConfigError("{} is '{}'; allowed here: {}",
                    kVariable,
                    value,
                    allowed.empty() ? "no value, leave it unset" : allowed);
}

SimdLevel best_simd_level() {
  return usable_levels().empty() ? SimdLevel::kBaseline : usable_levels().back();
}

SimdLevel simd_level() {
  static const SimdLevel level = limit_kernels();
  return level;
}

}  // namespace lockstep::cpu
