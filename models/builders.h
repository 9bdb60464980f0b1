#pragma once
// One builder per model; see registry.h.

#include "models/registry.h"
#include "runtime/graph/builder.h"

namespace lockstep {

Graph build_mlp(const MlpConfig& config,
                const ModelIo& io,
                int64_t lane_batch,
                const GraphOptions& options);
// `tokens`: length of the sequences, at most the context.
Graph build_gpt(const GptConfig& config,
                int64_t lane_batch,
                int64_t tokens,
                const GraphOptions& options);

}  // namespace lockstep
