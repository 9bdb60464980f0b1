#pragma once
// The work of each op of a graph, as a forecast needs it: products and convolutions with their
// extents, and the operations and bytes of everything else.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/cuda/kernel_work.h"
#include "runtime/graph/graph.h"

namespace lockstep::forecast {

// Products (m, k) x (k, n), or a convolution that is computed as such.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  int64_t groups = 1;        // products of this size that are computed at once
  bool convolution = false;  // whose (m, k) is not in memory: each pixel is read once
  double bytes = 0;          // of operands and result, each moved once
  int64_t repeats = 1;       // equal products of the op, one after the other

  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k * groups);
  }
  bool operator==(const Product&) const = default;
};

struct OpWork {
  graph::OpKind kind;
  std::string name;      // of the first op with this work
  std::string function;  // of an activation, "SILU", as functions take different times
  DType type;            // in which it computes
  std::vector<Product> products;
  double rest_flops = 0, rest_bytes = 0;  // beside the products
  bool rest_multiplies = false;           // the rest runs on the units for products: attention
  // What distinguishes this op from others of its kind: rows, columns and depth of its product,
  // the window of a convolution, heads and tokens of attention. Empty: only its size.
  std::vector<int64_t> extents;
  int64_t count = 0;                        // equal ops in the graph
  int lanes = 1;                            // that the op computes at once
  std::optional<cuda::KernelWork> kernels;  // on a GPU

  double flops() const;
  double bytes() const;
  bool same_as(const OpWork& other) const;  // but for name and count
  // As MeasuredOp::op has it: "linear", "activation.SILU".
  std::string measured_name() const;
};

struct GraphWork {
  std::vector<OpWork> works;
  std::vector<size_t> of_op;  // by op of the graph: its index in `works`
};

struct WorkOptions {
  double target_share =
      1;  // of the rows of the loss that have a target, if products skip the others
  std::optional<cuda::KernelGpu> gpu = {};  // whose kernels are counted
  // The graph for the lanes of a pass as if they were one, and how many these are.
  const graph::Graph* joint = nullptr;
  int lanes = 1;
};
GraphWork work_of(const graph::Graph& graph, const WorkOptions& options = {});

}  // namespace lockstep::forecast
