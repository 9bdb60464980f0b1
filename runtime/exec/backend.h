#pragma once
// What a device must offer: memory, an implementation of each op, and arithmetic on flat slices. A
// device may only queue the work that it is given: see SliceMath.

#include <cstddef>
#include <span>

#include "collectives/reducer.h"
#include "runtime/exec/op_call.h"
#include "runtime/exec/optimizer_math.h"

namespace lockstep {

// One way to run one kind of op.
struct Implementation {
  OpKind kind;
  const char* name;
  bool (*supports)(const Graph& graph, const Op& op);
  size_t (*workspace_bytes)(const Graph& graph, const Op& op);
  void (*run)(const OpCall& call);  // the launcher
};

class Backend : public SliceMath {
 public:
  virtual const char* name() const = 0;
  // Zeroed memory, aligned to at least 64 bytes, owned by the backend until it is destroyed: the
  // device's own, or such that host and device both reach. Throws MemoryError, which names `what`.
  enum class Place { kDevice, kHost };
  virtual std::byte* allocate(size_t bytes, const char* what, Place place = Place::kDevice) = 0;
  // Bytes handed out so far.
  virtual size_t allocated_bytes() const = 0;
  // All implementations, the fastest first and a plain one last for each kind.
  virtual std::span<const Implementation> implementations() const = 0;
  // One optimizer step on a slice; see optimizer_math.h for the arithmetic.
  virtual void update(const OptimizerSlice& slice) = 0;

  // Whether the host cannot reach what allocate() gives.
  virtual bool separate_memory() const = 0;
  // Copies between memory of allocate() and a host_array(), which stays as it is until then.
  virtual void copy(const std::byte* from, std::byte* to, size_t bytes) = 0;

  // Peak fp32 multiply-add rate of this rank's threads in floating-point operations a second, as
  // measured; 0: unknown.
  virtual double peak_flops() = 0;

  // The first implementation that supports the op; that there is none is a broken invariant.
  const Implementation& find(const Graph& graph, const Op& op) const;
};

}  // namespace lockstep
