#pragma once
// The vector and matrix units that the CPU's kernels use: all that the processor has, or fewer if
// LOCKSTEP_SIMD is set, for measurements and bug reports. They change no bit, except that products
// of bfloat16 on AMX have bits of their own (matmul/tile_units.h).

#include <span>

namespace lockstep::cpu {

// Each level has the units of those before it; the baseline has those that every processor of this
// architecture has.
enum class SimdLevel { kBaseline, kAvx2, kAvx512, kAmx };

// The level as a value of LOCKSTEP_SIMD: "AVX2", "AVX512", "AMX"; otherwise "baseline".
const char* name_of(SimdLevel level);

// The level that a value of LOCKSTEP_SIMD chooses among those that this process can use, which are
// in ascending order, without the baseline. If the value is null or empty, it is the highest.
// Throws ConfigError if it is none of their names.
SimdLevel parse_simd_level(const char* value, std::span<const SimdLevel> usable);

// The highest level that this processor has and the kernels are compiled for.
SimdLevel best_simd_level();

// The level of this process. The first call reads LOCKSTEP_SIMD and limits the kernels to it:
// make it before any kernel runs, as main() does. Throws ConfigError.
SimdLevel simd_level();

}  // namespace lockstep::cpu
