#pragma once
// The ops that a kind of device can run. Planning needs no such device.

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/graph/op_call.h"
#include "runtime/graph/op_kind.h"

namespace lockstep::exec {

// One way to run one kind of op.
struct Implementation {
  graph::OpKind kind;
  const char* name;                        // "simd", "cudnn"
  void (*run)(const graph::OpCall& call);  // null: the executor itself runs the op
  // Workspace bytes.
  size_t (*workspace_bytes)(const graph::OpCall& op) = [](const graph::OpCall&) {
    return size_t{0};
  };
  // Whether it supports the op's shapes, types and attributes.
  bool (*supports)(const graph::OpCall& op) = [](const graph::OpCall&) { return true; };
  // Whether this machine's device has what it needs (a library, an engine of that library); null:
  // any device has. Called when an executor is made, in the order of the table. An implementation
  // that is skipped may log the reason.
  bool (*available)(const graph::OpCall& op) = nullptr;
};

// The implementations of one op of ops.def, for all of its kinds. Within a kind, the fastest is
// first, and one that is available anywhere is last.
using Implementations = std::span<const Implementation>;

struct OpSet {
  const char* device;  // "cpu", "cuda"
  std::span<const Implementations> implementations;
  bool separate_memory;      // the host cannot reach the memory of Backend::allocate()
  size_t workspace_bytes;    // device memory that the backend uses in addition to the plan's rows
  int logits_alignment;      // bytes: see GraphOptions
  int max_tree_terms;        // max number of sums that one call adds in tree order
  size_t max_update_groups;  // of constants in a Backend::flat_update()
  // Workspace bytes of Backend::newton_schulz().
  size_t (*newton_schulz_bytes)(int64_t rows, int64_t columns);

  // Whether the kind, or this op, has an implementation.
  bool has(graph::OpKind kind) const;
  bool supports(const graph::Graph& graph, const graph::Op& op) const;
  // The workspace to plan for the op: enough for each implementation that may be chosen.
  size_t op_workspace_bytes(const graph::Graph& graph, const graph::Op& op) const;
  // The first implementation that supports the op and is available in `context`, the backend's
  // launch_context(). An op without any is a broken invariant, as it is for op_workspace_bytes().
  const Implementation& choose(const graph::Graph& graph, const graph::Op& op, void* context) const;
};

}  // namespace lockstep::exec
