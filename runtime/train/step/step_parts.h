#pragma once
// Makes the components of a training step from a run's context and memory.

#include <memory>

#include "collectives/gather/bucket_all_gather.h"
#include "collectives/gather/sum_all_gather.h"
#include "collectives/power_sgd/power_sgd.h"
#include "collectives/reduce/reducer.h"
#include "runtime/train/run_context.h"
#include "runtime/train/step/muon.h"
#include "runtime/train/step/optimizer.h"
#include "runtime/train/step/tensor_norms.h"
#include "runtime/train/step/weight_average.h"

namespace lockstep {

// Null if the optimizer needs no norms of tensors.
std::unique_ptr<TensorNorms> make_tensor_norms(const RunContext& context);

// Null without Muon. `gradients`: those that the optimizer reads.
std::unique_ptr<MuonDirections> make_muon(const RunContext& context,
                                          const RunMemory& memory,
                                          const OwnedFloats& gradients);

// Null if gradients are not sent as low-rank factors.
std::unique_ptr<PowerSgd> make_power_sgd(const RunContext& context, const RunMemory& memory);

// `compressed`: borrowed; null if the reducer itself exchanges the gradients.
ReducerOptions reducer_options(const RunContext& context,
                               const RunMemory& memory,
                               CompressedAllReduce* compressed);

// For parameters or, if every rank updates all of them, for summed gradients.
BucketAllGather::Memory gather_memory(const Plan& plan, const RunMemory& memory);

// For sums in 16 bits.
SumAllGather::Memory sum_all_gather_memory(const Plan& plan, const RunMemory& memory);

FlatWeights weights_of(const RunContext& context, const RunMemory& memory);

// Null if the config asks for no average. Its memory follows the moments.
std::unique_ptr<WeightAverage> make_average(const RunContext& context,
                                            const RunMemory& memory,
                                            Optimizer& optimizer);

// The number of recordings that make_recordings() makes.
size_t recordings_of(size_t lengths, int lanes);

// What a device may record of a step's gradients: one recording for each choice of a length for
// each lane. The choices are numbered in base `lengths`; the first lane's length is the leading
// digit. Empty if there would be too many.
std::vector<std::unique_ptr<RepeatedWork>> make_recordings(Backend& backend,
                                                           size_t lengths,
                                                           int lanes);

}  // namespace lockstep
