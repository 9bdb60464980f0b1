#pragma once
// What a device provides: memory, the ops, and arithmetic on flat slices. A device may only queue
// the work that it is given: see SliceMemory.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives/exchange/slice_math.h"
#include "collectives/power_sgd/power_sgd_products.h"
#include "runtime/base/content_hash.h"
#include "runtime/exec/op_set.h"
#include "runtime/exec/optimizers/decision.h"
#include "runtime/exec/optimizers/list.h"
#include "runtime/exec/optimizers/newton_schulz.h"

namespace lockstep::exec {

// Work that is queued repeatedly: always the same operations on the same memory. Values that change
// between runs are read from a host_array() or from memory of the backend. A device may record the
// work once and replay the record (a CUDA graph), so the work must not depend on the host in any
// other way.
class RepeatedWork {
 public:
  virtual ~RepeatedWork() = default;
  virtual void run(const std::function<void()>& work) = 0;
};

// An update of slices of the flat buffers, prepared once. It must not outlive its backend.
class FlatUpdate {
 public:
  virtual ~FlatUpdate() = default;
  // Queues a copy of the updates' constants to the device, for the next run(). No other update may
  // be loaded between the two. Once the copy is done, the host may change the constants.
  virtual void load() = 0;
  // Queues the update: always the same work on the same memory.
  virtual void run() = 0;
};

// Decides on a device whether the updates of a step are made, so that they are queued before the
// host knows the sums that this depends on. Updates that pass the gate do nothing while it is
// closed, and multiply every gradient by the gate's scale in place of UpdateStep::gradient_scale.
class UpdateGate {
 public:
  virtual ~UpdateGate() = default;
  // Queues the decision (optimizers/decision.h): opens the gate if all is finite, else closes it.
  virtual void decide(const collectives::GatheredSums& gathered, const UpdateRule& rule) = 0;
  // The sums of the latest decision. Waits for it, or for open(), but not for work that was queued
  // later.
  virtual collectives::StepSums sums() = 0;
  // Queues: opens the gate, for a decision that the host has made.
  virtual void open(float gradient_scale) = 0;
};

// Copies that overtake queued work, so that the next step's batches are copied while this step's
// are in use.
class BatchUploads {
 public:
  virtual ~BatchUploads() = default;
  // Starts a copy that overtakes the work queued since the last take(). `from` is host memory of
  // Backend::allocate(). No queued work except take() may read or write `to`.
  virtual void copy_ahead(const std::byte* from, std::byte* to, size_t bytes) = 0;
  // Queues a copy from the destination of a copy_ahead() to where the ops read it.
  virtual void take(const std::byte* from, std::byte* to, size_t bytes) = 0;
  // Returns when all copies ahead are done, so that their sources may change.
  virtual void finish() = 0;
};

class Backend : public collectives::SliceMath {
 public:
  virtual const OpSet& ops() const = 0;

  // Runs a small op of each library that the ops of `graph` call. So the memory that these
  // libraries load is taken before reserve() and before a run is checked against free memory.
  // Throws Error.
  virtual void warm_up(const graph::Graph& /*graph*/) {}
  // Reserves device memory for all later calls of allocate(). Throws MemoryError.
  virtual void reserve(size_t device_bytes) = 0;
  // Zeroed memory, aligned to at least 64 bytes, owned by the backend until it is destroyed.
  // kDevice is the device's own memory, kHost is memory that both host and device reach. Throws
  // MemoryError, which names `what`.
  enum class Place { kDevice, kHost };
  virtual std::byte* allocate(size_t bytes, const char* what, Place place = Place::kDevice) = 0;
  // Bytes handed out so far, including those that the backend keeps for itself.
  virtual size_t allocated_bytes() const = 0;
  // SliceMemory::copy() copies between memory of allocate() and memory of host_array().

  virtual BatchUploads& uploads() = 0;
  virtual collectives::PowerSgdProducts& power_sgd() = 0;

  // The ops that follow run for this lane, which must lie in a host_array(). The backend keeps it
  // in `place`, one of kLanesAtOnce, until another one is given for it.
  static constexpr int kLanesAtOnce = 64;
  virtual void begin_lane(const graph::LaneContext& lane, int place = 0) = 0;
  // The ops that follow run for the lane in this place.
  virtual void select_lane(int place) = 0;
  // The value that OpCall::device() passes to the launchers.
  virtual void* launch_context() = 0;
  // Prepares the update of slices, each with the update of its group; optimizers/list.h has the
  // arithmetic. Slices do not overlap; all have the same stored type and round moments alike. The
  // updates lie in a host_array(), and each load() reads their constants again, but the alternative
  // that each variant holds must not change. `gated`: the update passes update_gate().
  virtual std::unique_ptr<FlatUpdate> flat_update(std::span<const OptimizerUpdate> updates,
                                                  std::vector<OptimizerSlice> slices,
                                                  bool gated) = 0;
  // Null if the host decides, because it is never behind or ahead of the device.
  virtual UpdateGate* update_gate() = 0;
  // Orthogonalizes a matrix (rows, columns) in place: see optimizers/newton_schulz.h. The bits
  // depend on the matrix alone. The workspace has OpSet::newton_schulz_bytes(), aligned to 64
  // bytes.
  virtual void newton_schulz(float* matrix, const NewtonSchulz& shape, std::byte* workspace) = 0;
  // For Adafactor: adds the squares of the gradients to the sums of their rows and columns.
  // `step` lies in memory of the device. See optimizers/adafactor.h.
  virtual void add_factored_squares(const FactoredPiece& piece, const FactoredStep* step) = 0;
  // Overwrites the gradients with the directions that the factors give.
  virtual void factored_directions(const FactoredPiece& piece, const FactoredStep* step) = 0;
  // Writes to *out, in memory of allocate_host(), the hash of n elements, of which the first has
  // index `first_index` in the whole; see runtime/base/content_hash.h.
  virtual void hash(
      const std::byte* x, DType dtype, int64_t n, uint64_t first_index, ContentHash* out) = 0;

  virtual std::unique_ptr<RepeatedWork> repeated_work() = 0;
  // The plan has `bytes` of the device's memory for recordings of repeated work. If they take more,
  // a warning is logged.
  virtual void plan_recordings(size_t /*bytes*/) {}

  // Queues a timestamp, taken when the device reaches it.
  enum class Mark { kBackwardDone, kReduced };
  virtual void mark(Mark mark) = 0;
  // Milliseconds between the latest kBackwardDone and kReduced; valid after synchronize().
  virtual double reduce_ms() = 0;

  // Peak rate of multiply-adds of this rank, in floating-point operations per second, in the type
  // in which products are computed. 0: unknown.
  virtual double peak_flops() = 0;
};

}  // namespace lockstep::exec
