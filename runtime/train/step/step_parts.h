#pragma once
// What the parts of a training step are made with, of a run's parts and its memory.

#include <memory>

#include "collectives/gather/bucket_all_gather.h"
#include "collectives/gather/sum_all_gather.h"
#include "collectives/power_sgd/power_sgd.h"
#include "collectives/reduce/reducer.h"
#include "runtime/train/run_parts.h"
#include "runtime/train/step/muon.h"
#include "runtime/train/step/optimizer.h"
#include "runtime/train/step/tensor_norms.h"
#include "runtime/train/step/weight_average.h"

namespace lockstep {

// Null where no optimizer asks for them.
std::unique_ptr<TensorNorms> make_tensor_norms(const RunParts& parts);

// Null without Muon. `gradients`: those that the optimizer reads.
std::unique_ptr<MuonDirections> make_muon(const RunParts& parts,
                                          const RunMemory& memory,
                                          const OwnedFloats& gradients);

// Null where gradients travel whole.
std::unique_ptr<PowerSgd> make_power_sgd(const RunParts& parts, const RunMemory& memory);

// `compressed`: borrowed; null where the reducer exchanges the gradients.
ReducerOptions reducer_options(const RunParts& parts,
                               const RunMemory& memory,
                               CompressedAllReduce* compressed);

// Of parameters or, where every rank updates all of them, of summed gradients.
BucketAllGather::Memory gather_memory(const Plan& plan, const RunMemory& memory);

// Of sums in 16 bits.
SumAllGather::Memory sum_all_gather_memory(const Plan& plan, const RunMemory& memory);

FlatWeights weights_of(const RunParts& parts, const RunMemory& memory);

// Null without one. It lies behind the moments.
std::unique_ptr<WeightAverage> make_average(const RunParts& parts,
                                            const RunMemory& memory,
                                            Optimizer& optimizer);

// What a device may record of the gradients of a step: one for each choice of `lengths` lengths by
// `lanes` lanes, in the order of the numbers whose digits, the first lane's first, these are. None
// where there are many.
std::vector<std::unique_ptr<RepeatedWork>> make_recordings(Backend& backend,
                                                           size_t lengths,
                                                           int lanes);

}  // namespace lockstep
