#pragma once
// The optimizer step of all slices as a single piece of queued work.

#include <memory>
#include <span>

#include "runtime/cuda/stream.h"
#include "runtime/cuda/workspace.h"
#include "runtime/exec/backend.h"

namespace lockstep::cuda {

// See Backend::flat_update(). `updates` and `table`, which has an entry for each slice, are in
// pinned memory. The workspace, in device memory, is used by one update at a time, from its load()
// to the end of its run(). All are borrowed.
std::unique_ptr<exec::FlatUpdate> make_flat_update(std::span<const exec::OptimizerUpdate> updates,
                                                   std::span<const exec::OptimizerSlice> slices,
                                                   std::span<PlacedSlice> table,
                                                   bool gated,
                                                   Workspace& workspace,
                                                   Stream stream);

}  // namespace lockstep::cuda
