#pragma once
// The decision about a step's update, on the GPU.

#include <functional>
#include <memory>

#include "runtime/cuda/flat/optimizers.h"
#include "runtime/cuda/stream.h"
#include "runtime/exec/backend.h"

struct CUevent_st;

namespace lockstep::cuda {

// Adds up what the ranks have gathered, decides by exec::decide() and writes both results: the sums
// to *sums, pinned on the host, and the decision to *gate, in device memory. The statistics are
// added in the order of the lanes: the same bits as TotalsExchange::sum() on the host.
void decide_update(const collectives::GatheredSums& gathered,
                   const exec::UpdateRule& rule,
                   collectives::StepSums* sums,
                   GateState* gate,
                   Stream stream);

// See exec::UpdateGate. `sums` and `opened` are pinned, `gate` in device memory; all borrowed.
// `wait` returns when the device has reached an event.
std::unique_ptr<exec::UpdateGate> make_update_gate(collectives::StepSums* sums,
                                                   GateState* opened,
                                                   GateState* gate,
                                                   Stream stream,
                                                   std::function<void(CUevent_st*)> wait);

}  // namespace lockstep::cuda
