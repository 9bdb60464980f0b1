#include "runtime/tokenizer/growth_limit.h"

#include <fmt/core.h>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::tokenizer {

void GrowthLimit::fail_growth() const {
  throw DataError("{} makes more than {} bytes of {} {}{}; allowed: {} for each and {} more",
                  *stage_,
                  max_bytes_,
                  count_,
                  unit_,
                  plural(count_),
                  kTimes * bytes_each_,
                  kMoreBytes);
}

void GrowthLimit::fail_steps() const {
  throw DataError("{} takes more than {} steps for {} {}{}; allowed: {} for each and {} more",
                  *stage_,
                  max_steps_,
                  count_,
                  unit_,
                  plural(count_),
                  kSteps * bytes_each_,
                  kMoreSteps);
}

void require_stage_count(size_t stages, const JsonNode& last) {
  constexpr size_t kMaxStages = 1000;
  if (stages > kMaxStages)
    last.fail(fmt::format("is step {}; allowed: up to {}", stages, kMaxStages));
}

}  // namespace lockstep::tokenizer
