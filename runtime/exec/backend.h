#pragma once
// What a device must offer: memory, the ops, and arithmetic on flat slices. A device may only queue
// the work that it is given: see SliceMemory.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives/power_sgd/power_sgd_products.h"
#include "collectives/slice_math.h"
#include "runtime/base/content_hash.h"
#include "runtime/exec/op_set.h"
#include "runtime/exec/optimizers/list.h"
#include "runtime/exec/optimizers/newton_schulz.h"

namespace lockstep {

// Work that is queued again and again, always the same operations on the same memory: what differs
// from time to time they read from a host_array() or from memory of the backend. A device may
// record it once and replay the record, so the work must not depend on the host in any other way.
class RepeatedWork {
 public:
  virtual ~RepeatedWork() = default;
  virtual void run(const std::function<void()>& work) = 0;
};

// An update of slices of the flat buffers, prepared once. It does not outlive its backend.
class FlatUpdate {
 public:
  virtual ~FlatUpdate() = default;
  // Queues it: always the same work on the same memory.
  virtual void run() = 0;
};

// Copies that overtake queued work, so that the next step's batches come while this step's are in
// use.
class BatchUploads {
 public:
  virtual ~BatchUploads() = default;
  // A copy that overtakes the work queued since the last take(), from host memory of
  // Backend::allocate() to where no queued work but take() reads or writes.
  virtual void copy_ahead(const std::byte* from, std::byte* to, size_t bytes) = 0;
  // Queues a copy of what was so copied.
  virtual void take(const std::byte* from, std::byte* to, size_t bytes) = 0;
  // Returns when all copies ahead are done: what they read may change.
  virtual void finish() = 0;
};

class Backend : public SliceMath {
 public:
  virtual const OpSet& ops() const = 0;

  // Runs a small op of each library that the ops of `graph` call, so that what these load is in the
  // device's memory before reserve() and the question whether a run fits. Throws Error.
  virtual void warm_up(const Graph& /*graph*/) {}
  // Takes device memory once for all allocate()s that follow. Throws MemoryError.
  virtual void reserve(size_t device_bytes) = 0;
  // Zeroed memory, aligned to at least 64 bytes, owned by the backend until it is destroyed: the
  // device's own, or such that host and device both reach. Throws MemoryError, which names `what`.
  enum class Place { kDevice, kHost };
  virtual std::byte* allocate(size_t bytes, const char* what, Place place = Place::kDevice) = 0;
  // Bytes handed out so far, with those that the backend keeps for itself.
  virtual size_t allocated_bytes() const = 0;
  // copy() is between pieces of allocate() and host_array().

  virtual BatchUploads& uploads() = 0;
  virtual PowerSgdProducts& power_sgd() = 0;

  // The ops that follow are those of this lane, which lies in a host_array().
  virtual void begin_lane(const LaneContext& lane) = 0;
  // What OpCall::device() gives the launchers.
  virtual void* launch_context() = 0;
  // Updates of slices, each by that of its group; see optimizers/list.h for the arithmetic. Slices
  // do not overlap, and all store the same types and round moments alike. The updates lie in a host_array(): each run reads
  // their constants; which alternative each of them is does not change.
  virtual std::unique_ptr<FlatUpdate> flat_update(std::span<const OptimizerUpdate> updates,
                                                  std::vector<OptimizerSlice> slices) = 0;
  // Makes a matrix (rows, columns) orthogonal, in place: see optimizers/newton_schulz.h. The bits
  // depend on nothing but the matrix. The workspace, of OpSet::newton_schulz_bytes(), is aligned to
  // 64 bytes.
  virtual void newton_schulz(float* matrix, const NewtonSchulz& shape, std::byte* workspace) = 0;
  // *out, in memory of allocate_host(), = hash of n elements, the first of which is number
  // `first_index` of the whole; see runtime/base/content_hash.h.
  virtual void hash(
      const std::byte* x, DType dtype, int64_t n, uint64_t first_index, ContentHash* out) = 0;

  virtual std::unique_ptr<RepeatedWork> repeated_work() = 0;

  // Queues the noting of the time at which the device gets there.
  enum class Mark { kBackwardDone, kReduced };
  virtual void mark(Mark mark) = 0;
  // Milliseconds from kBackwardDone to kReduced, when both were last passed; after synchronize().
  virtual double reduce_ms() = 0;

  // Peak rate of multiply-adds of this rank in floating-point operations a second, in the type that
  // products are computed in; 0: unknown.
  virtual double peak_flops() = 0;
};

}  // namespace lockstep
