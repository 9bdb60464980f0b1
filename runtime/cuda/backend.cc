#include "runtime/cuda/backend.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cuda/algorithm_choices.h"
#include "runtime/cuda/algorithm_requests.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/flat/adafactor.h"
#include "runtime/cuda/flat/add_rows.h"
#include "runtime/cuda/flat/flat_update.h"
#include "runtime/cuda/flat/power_sgd_products.h"
#include "runtime/cuda/flat/tree_sum.h"
#include "runtime/cuda/flat/update_gate.h"
#include "runtime/cuda/matmul/newton_schulz.h"
#include "runtime/cuda/matmul/plain_product.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/op_set.h"
#include "runtime/cuda/recorded_work.h"
#include "runtime/cuda/streams.h"
#include "runtime/cuda/warm_up.h"
#include "runtime/cuda/workspace.h"

namespace lockstep::cuda {
namespace {

// Alignment of the operands of Matmul, in bytes.
constexpr size_t kOperandAlignment = 16;

class EagerWork final : public exec::RepeatedWork {
 public:
  void run(const std::function<void()>& work) override { work(); }
};

// A point in one stream that another stream waits for.
class StreamEvent {
 public:
  StreamEvent() { LOCKSTEP_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;
  ~StreamEvent() { cudaEventDestroy(event_); }
  void record(Stream stream) { LOCKSTEP_CUDA(cudaEventRecord(event_, stream)); }
  // Makes `stream` wait, from here on, for the point recorded last, if there is one.
  void hold(Stream stream) { LOCKSTEP_CUDA(cudaStreamWaitEvent(stream, event_, 0)); }

 private:
  cudaEvent_t event_ = nullptr;
};

// Copies on a separate stream.
class StreamUploads final : public exec::BatchUploads {
 public:
  StreamUploads(int device, Stream work) : work_(work), copies_(device) {}
  void copy_ahead(const std::byte* from, std::byte* to, size_t bytes) override {
    taken_.hold(copies_.get());
    LOCKSTEP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, copies_.get()));
    uploaded_.record(copies_.get());
  }
  void take(const std::byte* from, std::byte* to, size_t bytes) override {
    uploaded_.hold(work_);
    LOCKSTEP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, work_));
    taken_.record(work_);
  }
  void finish() override { LOCKSTEP_CUDA(cudaStreamSynchronize(copies_.get())); }

 private:
  Stream work_;  // the stream with which the copies overlap
  ScopedStream copies_;
  StreamEvent uploaded_, taken_;
};

class Gpu final : public CudaBackend {
 public:
  explicit Gpu(const BackendOptions& options)
      : options_(options),
        stream_(options.device),
        uploads_(options.device, stream_.get()),
        power_sgd_(stream_.get()),
        recorder_(stream_.get()) {
    if (!options.algorithms.text.empty())
      algorithms_.emplace(
          options.algorithms.path, options.algorithms.text, options.algorithm_facts);
  }

  const exec::OpSet& ops() const override { return op_set(); }

  void warm_up(const graph::Graph& graph) override {
    cuda::warm_up(graph, options_.tf32, options_.record_graphs ? &recorder_ : nullptr, stream());
  }
  void reserve(size_t device_bytes) override {
    arena_.reserve(device_bytes, stream());
    workspace_ = reinterpret_cast<Workspace*>(arena_.take(kWorkspaceBytes, "the workspace"));
    matmul_.emplace(stream(), workspace_->matmul, chooser<Matmul, Product>());
    if (algorithms_) muon_matmul_.emplace(stream(), workspace_->matmul);
    cudnn_attention_.emplace(stream());
    cudnn_conv2d_.emplace(stream(), chooser<CudnnConv2d, CudnnConv2dKey>());
    context_.emplace(LaunchContext{stream(),
                                   &*matmul_,
                                   &*cudnn_attention_,
                                   &*cudnn_conv2d_,
                                   options_.capability,
                                   options_.multiprocessors,
                                   options_.tf32,
                                   workspace_->lanes,
                                   options_.lanes_per_pass});
    gate_ = make_update_gate(
        host_array<collectives::StepSums>(1).data(),
        host_array<GateState>(1).data(),
        &workspace_->gate,
        stream(),
        [this](cudaEvent_t event) { wait([event] { return cudaEventQuery(event); }); });
  }
  std::byte* allocate(size_t bytes, const char* what, Place place) override {
    if (place == Place::kDevice) return arena_.take(bytes, what);
    host_bytes_ += bytes;
    return pinned_.allocate(bytes, what);
  }
  size_t allocated_bytes() const override { return arena_.taken_bytes() + host_bytes_; }
  std::byte* allocate_host(size_t bytes) override {
    return pinned_.allocate(bytes, "a few values");
  }
  void copy(const std::byte* from, std::byte* to, size_t bytes) override {
    LOCKSTEP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream()));
  }
  exec::BatchUploads& uploads() override { return uploads_; }
  collectives::PowerSgdProducts& power_sgd() override { return power_sgd_; }

  void begin_lane(const graph::LaneContext& lane, int place) override {
    select_lane(place);
    LOCKSTEP_CUDA(cudaMemcpyAsync(
        &workspace_->lanes[place], &lane, sizeof(lane), cudaMemcpyHostToDevice, stream()));
  }
  void select_lane(int place) override { context_->lane = &workspace_->lanes[place]; }
  void* launch_context() override { return &*context_; }

  std::unique_ptr<exec::FlatUpdate> flat_update(std::span<const exec::OptimizerUpdate> updates,
                                                std::vector<exec::OptimizerSlice> slices,
                                                bool gated) override {
    return make_flat_update(
        updates, slices, host_array<PlacedSlice>(slices.size()), gated, *workspace_, stream());
  }
  exec::UpdateGate* update_gate() override { return gate_.get(); }

  void tree_sum(const collectives::TreeSumTerms& terms, float* out, int64_t n) override {
    cuda::tree_sum(terms, out, n, stream());
  }
  void pack(const float* from, DType wire, std::byte* to, int64_t n) override {
    cuda::pack(from, wire, to, n, stream());
  }
  void add_rows(const collectives::AddedRows& rows,
                int64_t begin,
                int64_t end,
                float* to) override {
    cuda::add_rows(rows, begin, end, to, stream());
  }
  void fill_zeros(float* out, int64_t n) override {
    LOCKSTEP_CUDA(cudaMemsetAsync(out, 0, static_cast<size_t>(n) * sizeof(float), stream()));
  }
  void add_squares(const float* x, int64_t n, ExactSum* sum, uint32_t* bits) override {
    cuda::add_squares(x, n, workspace_->squares, sum, stream());
    if (bits != nullptr) add_bits(reinterpret_cast<const std::byte*>(x), DType::kF32, n, bits);
  }
  void add_bits(const std::byte* x, DType dtype, int64_t n, uint32_t* bits) override {
    if (size_of(dtype) == sizeof(uint16_t)) {
      cuda::add_bits(
          reinterpret_cast<const uint16_t*>(x), n, workspace_->bit_checksums, bits, stream());
    } else {
      cuda::add_bits(
          reinterpret_cast<const uint32_t*>(x), n, workspace_->bit_checksums, bits, stream());
    }
  }
  void hash(
      const std::byte* x, DType dtype, int64_t n, uint64_t first_index, ContentHash* out) override {
    by_type(dtype, [&]<typename T>() {
      content_hash<T>(
          reinterpret_cast<const T*>(x), n, first_index, workspace_->hashes, out, stream());
    });
  }

  // Products for which cuBLASLt has no algorithm, or whose operands are not aligned for it, use the
  // plain kernel. execution.tune has no algorithms for these products, because rank 0, which times
  // them, does not meet the matrices of other ranks.
  void newton_schulz(float* matrix,
                     const exec::NewtonSchulz& shape,
                     std::byte* workspace) override {
    const bool aligned = reinterpret_cast<uintptr_t>(matrix) % kOperandAlignment == 0;
    Matmul& matmul = muon_matmul_ ? *muon_matmul_ : *matmul_;
    const auto multiply = [&](const Product& product, const ProductOperands& operands) {
      if (aligned && matmul.supports(product)) return matmul.run(product, operands);
      plain_product(product, operands, stream());
    };
    if (options_.compute == DType::kF32)
      return cuda::newton_schulz<float>(
          matrix, shape, options_.tf32, workspace, stream(), multiply);
    // Also in FP16, whose range is too small for the entries of a large matrix of norm 1.
    cuda::newton_schulz<BFloat16>(matrix, shape, false, workspace, stream(), multiply);
  }

  void add_factored_squares(const exec::FactoredPiece& piece,
                            const exec::FactoredStep* step) override {
    cuda::add_factored_squares(piece, step, stream());
  }
  void factored_directions(const exec::FactoredPiece& piece,
                           const exec::FactoredStep* step) override {
    cuda::factored_directions(piece, step, stream());
  }

  std::unique_ptr<exec::RepeatedWork> repeated_work() override {
    if (!options_.record_graphs) return std::make_unique<EagerWork>();
    return recorder_.repeated_work();
  }

  void plan_recordings(size_t bytes) override { recorder_.plan(bytes); }

  void mark(Mark mark) override { marks_[static_cast<size_t>(mark)].record(stream()); }
  double reduce_ms() override { return marks_[0].ms_until(marks_[1]); }

  // Not cudaStreamSynchronize(), which would wait forever for a rank that has died.
  void synchronize() override {
    wait([this] { return cudaStreamQuery(stream()); });
  }

  double peak_flops() override { return options_.peak_flops; }
  Stream stream() override { return stream_.get(); }
  void watch(std::function<void()> check) override { watch_ = std::move(check); }
  void outside_graphs(std::function<void()> work) override { recorder_.outside(std::move(work)); }
  size_t graphs() const override { return recorder_.graphs(); }

 private:
  // Returns once `query` does not find work of the GPU unfinished any more.
  template <typename Query>
  void wait(Query query) {
    using namespace std::chrono_literals;
    // Each query takes a lock of the driver, which the loader's copies need too. So the loop pauses
    // between queries, for longer after some milliseconds (the duration of a small step).
    constexpr int kSpins = 1000, kPause = 64;
    for (int polls = 0;; ++polls) {
      const cudaError_t state = query();
      if (state == cudaSuccess) return;
      if (state != cudaErrorNotReady)
        check(state, "work queued on the GPU (--eager and CUDA_LAUNCH_BLOCKING=1 name the op)");
      if (polls % 256 == 255 && watch_) watch_();
      if (polls > kSpins) {
        std::this_thread::sleep_for(20us);
      } else {
        for (int i = 0; i < kPause; ++i) pause_briefly();
      }
    }
  }

  // What gives a library the algorithms of the run's file; null if there is no file.
  template <typename Library, typename Key>
  typename Library::Choose chooser() const {
    if (!algorithms_) return nullptr;
    return [choices = &*algorithms_](Library& library, const Key& key) {
      return use_choice(*choices, library, key);
    };
  }

  BackendOptions options_;
  std::optional<AlgorithmChoices> algorithms_;
  ScopedStream stream_;  // for all work except the uploads
  StreamUploads uploads_;
  CudaPowerSgdProducts power_sgd_;
  Recorder recorder_;
  DeviceArena arena_;
  PinnedMemory pinned_;
  size_t host_bytes_ = 0;
  Workspace* workspace_ = nullptr;  // on the device
  std::optional<Matmul> matmul_;
  std::optional<Matmul> muon_matmul_;  // only if matmul_ has algorithms of a file
  std::optional<CudnnAttention> cudnn_attention_;
  std::optional<CudnnConv2d> cudnn_conv2d_;
  std::optional<LaunchContext> context_;
  std::unique_ptr<exec::UpdateGate> gate_;
  std::function<void()> watch_;
  TimeMark marks_[2];
};

}  // namespace

std::unique_ptr<CudaBackend> make_backend(const BackendOptions& options) {
  return std::make_unique<Gpu>(options);
}

}  // namespace lockstep::cuda
