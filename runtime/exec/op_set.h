#pragma once
// The ops that a kind of device can run. Known without such a device: planning needs no more.

#include <cstddef>
#include <span>

#include "runtime/exec/op_call.h"

namespace lockstep {

// One way to run one kind of op.
struct Implementation {
  OpKind kind;
  const char* name;
  bool (*supports)(const Graph& graph, const Op& op);
  size_t (*workspace_bytes)(const Graph& graph, const Op& op);
  void (*run)(const OpCall& call);  // the launcher
};

struct OpSet {
  const char* device;  // "cpu", "cuda"
  // All implementations, the fastest first and a plain one last for each kind.
  std::span<const Implementation> implementations;
  bool separate_memory;       // the host cannot reach what Backend::allocate() gives
  size_t workspace_bytes;     // device memory that the backend uses beside the plan's other rows
  int logits_alignment;       // bytes: see GraphOptions
  int most_tree_ranks;        // whose sums can be added in the tree's order at once
  size_t most_update_groups;  // of constants, in a Backend::flat_update()

  // The first implementation that supports the op; that there is none is a broken invariant.
  const Implementation& find(const Graph& graph, const Op& op) const;
  // Whether there is one.
  bool supports(const Graph& graph, const Op& op) const;

 private:
  const Implementation* first(const Graph& graph, const Op& op) const;
};

}  // namespace lockstep
