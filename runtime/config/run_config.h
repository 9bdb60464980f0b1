#pragma once
// The validated configuration of a run: RunConfig and the structs below it, which the build
// generates from schema/ (run_config_structs.h in the build folder), and values derived from them.
// parse.h makes them from text. Other folders use these structs, never the protobuf messages of a
// config.

#include <cstdint>
#include <string>
#include <variant>

#include "runtime/config/run_config_structs.h"

namespace lockstep::config {

// The name in a config of the oneof member that `section` holds: "gpt", "adamw".
template <typename... Members>
std::string name_of(const std::variant<Members...>& section) {
  return std::visit([](const auto& member) { return member.kName; }, section);
}

// Whether gradients are computed or summed in FP16, so that the loss is scaled.
inline bool has_fp16_gradients(const RunConfig& config) {
  return config.execution.precision == Precision::kFp16 ||
         config.comm.wire_dtype == CommConfig::WireType::kFp16;
}

// The number of groups of lanes whose sums have residuals; 0: there are no residuals.
inline int residual_groups(const RunConfig& config) {
  if (!config.comm.error_feedback && config.comm.power_sgd_rank == 0) return 0;
  const int64_t groups = config.comm.residual_groups;
  return static_cast<int>(groups > 0 ? groups : config.train.lanes);
}

}  // namespace lockstep::config
