#pragma once
// cudnn-frontend and the graphs that it builds. Only cudnn_graphs.cc includes this.

// JSON would only let the frontend log descriptions of graphs. Without it, the frontend compiles in
// half the time.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

#include <memory>
#include <unordered_map>

#include "runtime/base/dtype.h"
#include "runtime/base/error.h"

namespace lockstep::cuda {

namespace fe = cudnn_frontend;
using Graph = std::shared_ptr<fe::graph::Graph>;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Pack = std::unordered_map<int64_t, void*>;  // arrays by their id in the graph

inline fe::DataType_t cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return fe::DataType_t::FLOAT;
    case DType::kBF16: return fe::DataType_t::BFLOAT16;
    case DType::kF16: return fe::DataType_t::HALF;
    default: LOCKSTEP_CHECK(false, "cuDNN does not get arrays of {}", name_of(dtype));
  }
}

// An empty graph over arrays of this type, for GPUs of compute capability `sm`; sums are floats.
inline Graph new_graph(DType dtype, int sm) {
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_sm_version(sm);
  graph->set_io_data_type(cudnn_type(dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  return graph;
}

}  // namespace lockstep::cuda
