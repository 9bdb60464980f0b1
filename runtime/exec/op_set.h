#pragma once
// The ops that a kind of device can run. Planning needs no such device.

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/graph/op_call.h"
#include "runtime/graph/op_kind.h"

namespace lockstep {

// One way to run one kind of op.
struct Implementation {
  OpKind kind;
  const char* name;                 // "simd", "cudnn"
  void (*run)(const OpCall& call);  // null: the executor itself does it
  // Bytes that it works in.
  size_t (*workspace_bytes)(const OpCall& op) = [](const OpCall&) { return size_t{0}; };
  // Whether it takes such shapes, types and attributes.
  bool (*supports)(const OpCall& op) = [](const OpCall&) { return true; };
  // Whether the device at hand has what it needs (a library, an engine of that library); null: any
  // device has. Asked when an executor is made, in the order of the table; an implementation that
  // is passed over may say in the log why it is.
  bool (*available)(const OpCall& op) = nullptr;
};

// Those of one op of ops.def, of all of its kinds. Of each kind the fastest stands first, and one
// that is available anywhere last.
using Implementations = std::span<const Implementation>;

struct OpSet {
  const char* device;  // "cpu", "cuda"
  std::span<const Implementations> implementations;
  bool separate_memory;       // the host cannot reach what Backend::allocate() gives
  size_t workspace_bytes;     // device memory that the backend uses beside the plan's other rows
  int logits_alignment;       // bytes: see GraphOptions
  int most_tree_ranks;        // whose sums can be added in the tree's order at once
  size_t most_update_groups;  // of constants, in a Backend::flat_update()
  // What Backend::newton_schulz() works in.
  size_t (*newton_schulz_bytes)(int64_t rows, int64_t columns);

  // Whether there is an implementation of the kind, of the op.
  bool has(OpKind kind) const;
  bool supports(const Graph& graph, const Op& op) const;
  // What is planned for the op: enough for each implementation that may be chosen.
  size_t op_workspace_bytes(const Graph& graph, const Op& op) const;
  // The first implementation that supports the op and is available in `context`, the backend's
  // launch_context(). That there is none is a broken invariant, as it is for op_workspace_bytes().
  const Implementation& choose(const Graph& graph, const Op& op, void* context) const;
};

}  // namespace lockstep
