#pragma once
// The ops that a kind of device can run. Planning needs no such device.

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "runtime/base/dtype.h"
#include "runtime/graph/op_call.h"
#include "runtime/graph/op_kind.h"

namespace lockstep::exec {

inline size_t no_workspace(const graph::OpCall& /*call*/) { return 0; }
inline bool any_op(const graph::OpCall& /*call*/) { return true; }

// One way to run one kind of op.
struct Implementation {
  graph::OpKind kind;
  const char* name;                        // "simd", "cudnn"
  void (*run)(const graph::OpCall& call);  // null: the executor itself runs the op
  // Workspace bytes.
  size_t (*workspace_bytes)(const graph::OpCall& op) = no_workspace;
  // Whether it supports the op's shapes, types and attributes.
  bool (*supports)(const graph::OpCall& op) = any_op;
  // Whether this machine's device has what it needs (a library, an engine of that library); null:
  // any device has. Called when an executor is made, in the order of the table. An implementation
  // that is skipped may log the reason.
  bool (*available)(const graph::OpCall& op) = nullptr;
};

// A function of a call, given one of the call or of the struct of the op's arguments.
template <auto f>
constexpr auto of_call() {
  if constexpr (std::is_null_pointer_v<decltype(f)> ||
                std::is_invocable_v<decltype(f), const graph::OpCall&>) {
    return f;
  } else {
    return []<typename Result, typename Arguments>(Result (*)(const Arguments&)) {
      return [](const graph::OpCall& call) { return f(Arguments{call}); };
    }(f);
  }
}

// An implementation whose functions take the call or the struct of the op's arguments.
template <auto run,
          auto workspace_bytes = no_workspace,
          auto supports = any_op,
          bool (*available)(const graph::OpCall&) = nullptr>
constexpr Implementation row(graph::OpKind kind, const char* name) {
  return {kind, name, of_call<run>(), of_call<workspace_bytes>(), of_call<supports>(), available};
}

// The implementations of one op of ops.def, for all of its kinds. Within a kind, the fastest is
// first, and one that is available anywhere is last.
using Implementations = std::span<const Implementation>;

struct OpSet {
  const char* device;  // "cpu", "cuda"
  std::span<const Implementations> implementations;
  std::span<const DType> types;  // in which it computes
  bool separate_memory;          // the host cannot reach the memory of Backend::allocate()
  size_t workspace_bytes;    // device memory that the backend uses in addition to the plan's rows
  int head_multiple;         // see GraphOptions
  int max_tree_terms;        // max number of sums that one call adds in tree order
  size_t max_update_groups;  // of constants in a Backend::flat_update()
  // Workspace bytes of Backend::newton_schulz().
  size_t (*newton_schulz_bytes)(int64_t rows, int64_t columns);

  bool computes_in(DType type) const;
  // Whether the kind, or this op, has an implementation.
  bool has(graph::OpKind kind) const;
  bool supports(const graph::Graph& graph, const graph::Op& op) const;
  // The workspace to plan for the op: enough for each implementation that may be chosen.
  size_t op_workspace_bytes(const graph::Graph& graph, const graph::Op& op) const;
  // The first implementation that supports the op, for so many lanes at once, and is available in
  // `context`, the backend's launch_context(). An op without any is a broken invariant, as it is
  // for op_workspace_bytes().
  const Implementation& choose(const graph::Graph& graph,
                               const graph::Op& op,
                               void* context,
                               int lanes = 1) const;
};

}  // namespace lockstep::exec
