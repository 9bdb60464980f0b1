#include "runtime/cuda/cudnn_attention.h"

#include <cmath>
#include <map>

#include "runtime/base/error.h"
#include "runtime/cuda/cudnn_library.h"

namespace lockstep::cuda {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// Names of the arrays within a graph.
enum Uid : int64_t { kQ = 1, kK, kV, kOut, kStats, kDOut, kDQ, kDK, kDV };

// Makes the graph of one pass.
class PassBuilder {
 public:
  // `sm`: compute capability of a GPU that is not there; 0: that of the GPU at hand.
  explicit PassBuilder(const CudnnAttentionKey& key, int sm = 0) : key_(key) {
    if (sm > 0) graph_->set_sm_version(sm);
    graph_->set_io_data_type(cudnn_type(key.dtype))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  std::shared_ptr<fe::graph::Graph> build() {
    key_.backward ? backward() : forward();
    return graph_;
  }

 private:
  std::vector<int64_t> dimensions() const {
    const AttentionShape& s = key_.shape;
    return {s.batch, s.heads, s.time, s.head_size};
  }
  // Of q, k or v within (B, T, 3, H, D), or of (B, T, H, D).
  std::vector<int64_t> strides(int64_t parts) const {
    const AttentionShape& s = key_.shape;
    const int64_t row = parts * s.heads * s.head_size;
    return {s.time * row, s.head_size, row, 1};
  }
  Tensor input(Uid uid, int64_t parts) {
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_uid(uid)
                              .set_dim(dimensions())
                              .set_stride(strides(parts)));
  }
  void output(const Tensor& tensor, Uid uid, int64_t parts) const {
    tensor->set_output(true).set_uid(uid).set_dim(dimensions()).set_stride(strides(parts));
  }
  std::vector<int64_t> stats_dimensions() const {
    return {key_.shape.batch, key_.shape.heads, key_.shape.time, 1};
  }
  std::vector<int64_t> stats_strides() const {
    return {key_.shape.heads * key_.shape.time, key_.shape.time, 1, 1};
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(key_.shape.head_size)); }

  void forward() {
    auto how = fe::graph::SDPA_attributes().set_generate_stats(true).set_attn_scale(scale());
    if (key_.shape.causal) how.set_causal_mask(true);
    const auto [out, stats] = graph_->sdpa(input(kQ, 3), input(kK, 3), input(kV, 3), how);
    output(out, kOut, 1);
    stats->set_output(true)
        .set_uid(kStats)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim(stats_dimensions())
        .set_stride(stats_strides());
  }

  void backward() {
    auto how =
        fe::graph::SDPA_backward_attributes().set_attn_scale(scale()).set_deterministic_algorithm(
            true);
    if (key_.shape.causal) how.set_causal_mask(true);
    const Tensor stats = graph_->tensor(fe::graph::Tensor_attributes()
                                            .set_uid(kStats)
                                            .set_data_type(fe::DataType_t::FLOAT)
                                            .set_dim(stats_dimensions())
                                            .set_stride(stats_strides()));
    const auto [d_q, d_k, d_v] = graph_->sdpa_backward(
        input(kQ, 3), input(kK, 3), input(kV, 3), input(kOut, 1), input(kDOut, 1), stats, how);
    output(d_q, kDQ, 3);
    output(d_k, kDK, 3);
    output(d_v, kDV, 3);
  }

  const CudnnAttentionKey key_;
  std::shared_ptr<fe::graph::Graph> graph_ = std::make_shared<fe::graph::Graph>();
};

// All engines are as good: the pass itself was asked for in a fixed order.
void choose_engines(fe::graph::Graph&) {}

}  // namespace

struct CudnnAttention::Library {
  explicit Library(Stream stream) : graphs(stream) {}
  const CudnnGraphs<CudnnAttentionKey>::Planned& plan(const CudnnAttentionKey& key) {
    return graphs.plan(
        key,
        static_cast<int64_t>(cudnn_attention_workspace_bytes(key)),
        [&](int sm) { return PassBuilder(key, sm).build(); },
        choose_engines);
  }
  CudnnGraphs<CudnnAttentionKey> graphs;
};

CudnnAttention::CudnnAttention(Stream stream) {
  try {
    library_ = std::make_unique<Library>(stream);
  } catch (const std::exception& error) {
    why_not_ = error.what();
  }
}

CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::supports(const AttentionShape& shape, DType dtype) {
  if (!library_ || dtype == DType::kF32) return false;
  AttentionShape part = shape;
  part.batch = cudnn_backward_batch(shape);
  for (const CudnnAttentionKey& key :
       {CudnnAttentionKey{shape, dtype, false}, CudnnAttentionKey{part, dtype, true}}) {
    const auto& planned = library_->plan(key);
    if (planned.refusal.empty()) continue;
    why_not_ = planned.refusal;
    return false;
  }
  return true;
}

void CudnnAttention::run(const CudnnAttentionKey& key,
                         const CudnnAttentionArrays& arrays,
                         void* workspace) {
  // The parts of a packed array lie C elements apart.
  const auto part = [&](const void* packed, int64_t number) {
    const auto bytes =
        static_cast<size_t>(number * key.shape.heads * key.shape.head_size) * size_of(key.dtype);
    return const_cast<std::byte*>(static_cast<const std::byte*>(packed)) + bytes;
  };
  std::unordered_map<int64_t, void*> pack = {{kQ, part(arrays.qkv, 0)},
                                             {kK, part(arrays.qkv, 1)},
                                             {kV, part(arrays.qkv, 2)},
                                             {kOut, arrays.out},
                                             {kStats, arrays.log_sum_exp}};
  if (key.backward) {
    pack[kDOut] = const_cast<void*>(arrays.d_out);
    pack[kDQ] = part(arrays.d_qkv, 0);
    pack[kDK] = part(arrays.d_qkv, 1);
    pack[kDV] = part(arrays.d_qkv, 2);
  }
  fe::error_t status =
      library_->plan(key).graph->execute(library_->graphs.handle(), pack, workspace);
  if (status.is_bad())
    throw Error(ExitCode::kInternal, "cuDNN's attention failed: " + status.get_message());
}

namespace {

size_t up(int64_t n, int64_t unit) { return static_cast<size_t>((n + unit - 1) / unit * unit); }

// The gradient of the scores in 16 bits, in whole tiles: what the fixed order of the sums costs.
size_t score_bytes(const AttentionShape& shape, int64_t batch) {
  return 2 * static_cast<size_t>(batch * shape.heads) * up(shape.time, 64) * up(shape.time, 128);
}

}  // namespace

int64_t cudnn_backward_batch(const AttentionShape& shape) {
  constexpr size_t kMost = size_t{1} << 30;
  int64_t batch = shape.batch;
  while (batch > 1 && (shape.batch % batch != 0 || score_bytes(shape, batch) > kMost)) --batch;
  return batch;
}

size_t cudnn_attention_workspace_bytes(const CudnnAttentionKey& key) {
  constexpr size_t kSlack = size_t{1} << 20;
  if (!key.backward) return kSlack;
  const AttentionShape& s = key.shape;
  const size_t sums = static_cast<size_t>(s.batch * s.heads) * up(s.time, 128) * sizeof(float);
  return score_bytes(s, s.batch) + sums + kSlack;
}

std::string cudnn_attention_refusal(const CudnnAttentionKey& key,
                                    int sm,
                                    const std::string& device_json) {
  try {
    load_cudnn();
    const std::shared_ptr<fe::graph::Graph> graph = PassBuilder(key, sm).build();
    return refusal_on_described_gpu(*graph,
                                    device_json,
                                    static_cast<int64_t>(cudnn_attention_workspace_bytes(key)),
                                    choose_engines);
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace lockstep::cuda
