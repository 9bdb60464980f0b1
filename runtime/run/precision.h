#pragma once
// Between stages 2 and 3 of a run's preparation: the type in which the run computes. Only this file
// knows what execution.precision: AUTO means; later stages see FP32, BF16 or FP16.

#include <optional>
#include <string>

#include "runtime/exec/op_set.h"
#include "runtime/run/open_data.h"

namespace lockstep::run {

struct ChosenPrecision {
  OpenedConfig opened;  // execution.precision is not AUTO, and fits the device and the purpose
  std::string reason;   // why it is not the config's own value: "AUTO"; empty: it is
  bool worth_logging = false;

  std::string text() const;  // "BF16 (AUTO)"
};

// Resolves execution.precision for a device with `ops`. AUTO is FP32 with execution.tf32 and
// bf16x3; otherwise the type that the checkpoint's run `recorded`, if there is one; otherwise BF16
// on a GPU (all that Lockstep accepts have it: compute capability 8.0 or newer), unless the model
// needs FP32, and FP32 on a CPU.
//
// Training in a type that the device does not compute in (FP16 on a CPU) throws ConfigError. Other
// purposes compute in FP32 then, and ignore tf32 on CPUs and bf16x3 on GPUs. On GPUs, texts and
// images are generated in FP32. All ranks get the same result, since their devices are of one kind.
// Throws ConfigError.
ChosenPrecision choose_precision(const OpenedConfig& opened,
                                 RunPurpose purpose,
                                 const exec::OpSet& ops,
                                 std::optional<Precision> recorded = std::nullopt);

}  // namespace lockstep::run
