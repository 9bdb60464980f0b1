#pragma once
// Backward passes that consist of two independent halves, the gradients of the input and of the
// weights. The implementation of each half is chosen separately. The table of implementations has a
// row for each pair.

#include <algorithm>
#include <cstddef>

#include "runtime/exec/op_set.h"

namespace lockstep::cuda {

// One way to compute a half. The fields are those of Implementation; available may be null.
struct Half {
  void (*run)(const graph::OpCall& call);
  size_t (*workspace_bytes)(const graph::OpCall& op) = exec::no_workspace;
  bool (*supports)(const graph::OpCall& op) = exec::any_op;
  bool (*available)(const graph::OpCall& op) = nullptr;
};

// A row for a pair, whose first half runs first. A table lists pairs in order of preference of the
// first half, then of the second.
template <graph::OpKind kKind, const Half& kFirst, const Half& kSecond>
constexpr exec::Implementation both(const char* name) {
  return {kKind,
          name,
          [](const graph::OpCall& call) {
            kFirst.run(call);
            kSecond.run(call);
          },
          [](const graph::OpCall& op) {
            return std::max(kFirst.workspace_bytes(op), kSecond.workspace_bytes(op));
          },
          [](const graph::OpCall& op) { return kFirst.supports(op) && kSecond.supports(op); },
          kFirst.available == nullptr && kSecond.available == nullptr
              ? nullptr
              : +[](const graph::OpCall& op) {
                  return (kFirst.available == nullptr || kFirst.available(op)) &&
                         (kSecond.available == nullptr || kSecond.available(op));
                }};
}

}  // namespace lockstep::cuda
