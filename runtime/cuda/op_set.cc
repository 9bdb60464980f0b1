#include "runtime/cuda/op_set.h"
#include "runtime/cuda/flat/tree_sum.h"
#include "runtime/cuda/matmul/newton_schulz.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/workspace.h"

namespace lockstep::cuda {
namespace {

constexpr int kLogitsAlignment = 128;  // bytes: whole tiles of products, and of cache

}  // namespace

const OpSet& op_set() {
  static const Implementations all[] = {
#define OP(stem, Stem) kCuda##Stem,
#define CUDA_OP OP
#include "runtime/graph/ops.def"
  };
  static const OpSet ops = {"cuda",
                            all,
                            true,
                            kWorkspaceBytes,
                            kLogitsAlignment,
                            kMostTerms,
                            kMostUpdateGroups,
                            newton_schulz_bytes};
  return ops;
}

}  // namespace lockstep::cuda
