// Plans for GPUs know the ops that the CUDA backend has, and no other: that they know the same
// workspaces and limits is compared in the test of each op (op_test.cc). Catches: an op with
// kernels that no plan for a GPU takes, or one that a plan takes and no GPU can run.
#include "runtime/cuda/planned_ops.h"

#include <gtest/gtest.h>

#include <map>

#include "runtime/cuda/ops/implementations.h"
#include "runtime/graph/op_kind.h"

namespace lockstep::test {
namespace {

TEST(PlannedOps, AreThoseOfTheBackend) {
  std::map<graph::OpKind, int> rows;  // of each kind, among the implementations
  for (const exec::Implementations& of_op : {
#define OP(stem, Stem) cuda::kCuda##Stem,
#include "runtime/graph/ops.def"
       }) {
    for (const exec::Implementation& row : of_op) ++rows[row.kind];
  }
  const exec::OpSet& planned = cuda::planned_ops();
  for (int k = 0; k < static_cast<int>(graph::OpKind::kCount); ++k) {
    const auto kind = static_cast<graph::OpKind>(k);
    if (kind == graph::OpKind::kGatherLanes) continue;  // the executor's
    EXPECT_EQ(planned.has(kind), rows.count(kind) == 1) << graph::name_of(kind);
  }
}

}  // namespace
}  // namespace lockstep::test
