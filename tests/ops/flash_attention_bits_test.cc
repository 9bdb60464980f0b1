// Catches: attention on tensor cores whose bits depend on the other samples of a batch, or on heads
// that lie beside each other; a kernel that writes outside of its workspace.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

#include "runtime/base/half.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/flash_attention.h"
#include "runtime/cuda/plan/attention.h"
#include "runtime/graph/autodiff.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/schema.h"
#include "tests/fibers/host_stream.h"
#include "tests/reference/kernel_test.h"

namespace lockstep::test {
namespace {

using Bytes = std::vector<std::byte>;

// An attention and its backward pass, on inputs that depend on the sample's number alone.
class Attention {
 public:
  Attention(graph::AttentionShape shape, DType type, bool documents) : shape_(shape), type_(type) {
    graph::GraphOptions options(graph::Purpose::kTraining);
    options.compute = type;
    graph::GraphBuilder builder(options);
    const TensorId qkv =
        builder.activation_tensor("qkv", {shape.batch, shape.time, shape.packed_width()});
    const TensorId numbers =
        documents
            ? builder.tensor(
                  "documents", {shape.batch, shape.time}, DType::kI32, graph::Role::kActivation)
            : kNoTensor;
    builder.keep(ops::attention(
        builder, "y", qkv, {shape.heads, shape.causal, shape.kv_heads, shape.window}, numbers));
    graph_ = std::move(builder).finish();
    const graph::Op forward = graph_.ops.back();
    graph::GradientBuilder gradients(graph_, std::vector<bool>(graph_.tensors.size(), true));
    d_y_ = gradients.new_gradient(forward.outputs.first());
    graph::schema_of(forward.kind).backward(gradients, forward, {d_y_, kNoTensor});
    qkv_ = qkv;
    documents_ = numbers;
  }

  // The outputs of samples [first, first + batch), one after the other: y, log_sum_exp and d_qkv.
  std::vector<Bytes> run(int64_t first) {
    std::deque<Guarded<std::byte>> memory;
    std::vector<std::byte*> arrays;
    for (const graph::Tensor& tensor : graph_.tensors) {
      memory.emplace_back(static_cast<int64_t>(tensor.bytes()));
      arrays.push_back(memory.back().data());
    }
    fill(arrays[static_cast<size_t>(qkv_)], shape_.packed_width(), first);
    fill(arrays[static_cast<size_t>(d_y_)], shape_.width(), first + 100);
    for (int64_t i = 0; documents_ != kNoTensor && i < shape_.batch * shape_.time; ++i) {
      const int64_t sample = first + i / shape_.time, t = i % shape_.time;
      reinterpret_cast<int32_t*>(arrays[static_cast<size_t>(documents_)])[i] =
          static_cast<int32_t>(t / (5 + 20 * sample) % 7) - (t % 11 == sample ? 8 : 0);
    }
    CUstream_st stream;
    const graph::LaneContext lane{};
    cuda::LaunchContext context = {.stream = &stream, .tf32 = type_ == DType::kF32, .lane = &lane};
    std::vector<Bytes> outputs;
    for (const graph::Op& op : graph_.ops) {
      const bool forward = op.kind == graph::OpKind::kAttention;
      const graph::OpCall planned(graph_, op);
      Guarded<std::byte> workspace(
          static_cast<int64_t>(forward ? 0 : cuda::native_attention_backward_workspace(planned)));
      const graph::OpCall call(graph_, op, arrays.data(), workspace.data(), lane, &context);
      (forward ? cuda::flash_attention : cuda::flash_attention_backward)(call);
      fibers::drain();
      EXPECT_TRUE(workspace.intact()) << "written outside of the workspace";
      for (const TensorId id : op.outputs) {
        const std::byte* const from = arrays[static_cast<size_t>(id)];
        outputs.emplace_back(from, from + graph_[id].bytes());
      }
    }
    for (const Guarded<std::byte>& array : memory)
      EXPECT_TRUE(array.intact()) << "written outside of an array";
    return outputs;
  }

 private:
  void fill(std::byte* to, int64_t width, int64_t first) const {
    const int64_t sample = shape_.time * width;
    for (int64_t i = 0; i < shape_.batch * sample; ++i) {
      const auto x = static_cast<float>(std::sin(static_cast<double>(i + first * sample) * 0.37));
      switch (type_) {
        case DType::kBF16: reinterpret_cast<BFloat16*>(to)[i] = round_to<BFloat16>(x); break;
        case DType::kF16: reinterpret_cast<Float16*>(to)[i] = round_to<Float16>(x); break;
        default: reinterpret_cast<float*>(to)[i] = x;
      }
    }
  }

  graph::AttentionShape shape_;
  DType type_;
  graph::Graph graph_;
  TensorId qkv_ = kNoTensor, documents_ = kNoTensor, d_y_ = kNoTensor;
};

TEST(FlashAttentionBits, SamplesDoNotDependOnTheirBatch) {
  constexpr int64_t kBatch = 3;
  for (const DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const bool documents : {false, true}) {
      graph::AttentionShape shape = {kBatch, 67, 4, 24, true, 2};
      if (!documents) shape.window = 40;
      const std::vector<Bytes> together = Attention(shape, type, documents).run(0);
      shape.batch = 1;
      std::vector<Bytes> apart(together.size());
      for (int64_t sample = 0; sample < kBatch; ++sample) {
        const std::vector<Bytes> one = Attention(shape, type, documents).run(sample);
        for (size_t k = 0; k < one.size(); ++k)
          apart[k].insert(apart[k].end(), one[k].begin(), one[k].end());
      }
      EXPECT_EQ(together, apart) << name_of(type) << (documents ? " with documents" : "");
    }
  }
}

}  // namespace
}  // namespace lockstep::test
