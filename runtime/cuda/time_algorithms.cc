#include "runtime/cuda/time_algorithms.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/cuda/algorithm_requests.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/cudnn/cudnn_attention.h"
#include "runtime/cuda/cudnn/cudnn_conv2d.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/matmul/matmul.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/op_set.h"
#include "runtime/cuda/ops/activation.h"
#include "runtime/cuda/streams.h"

namespace lockstep::cuda {
namespace {

constexpr int kRuns = 7;        // of each algorithm, after one that is not timed
constexpr size_t kEngines = 8;  // of cuDNN, timed for each request: building one takes a second

// Arrays of one request, filled with numbers of magnitude 0.5 to 2 in any type. Bytes that are zero
// would draw less power, and so let the GPU run faster, than those of a training.
class Arrays {
 public:
  Arrays(std::initializer_list<size_t> bytes, Stream stream) {
    constexpr size_t kAlignment = 256;
    size_t all = 0;
    for (const size_t of_array : bytes)
      all += (of_array + kAlignment - 1) / kAlignment * kAlignment;
    memory_.reserve(all, stream);
    for (const size_t of_array : bytes) arrays_.push_back(memory_.take(of_array, "an array"));
    fill(arrays_.front(), all, stream);
  }
  std::byte* operator[](size_t i) const { return arrays_[i]; }

 private:
  static void fill(std::byte* to, size_t bytes, Stream stream) {
    std::mt19937 random(1);
    std::vector<uint16_t> numbers(size_t{1} << 15);
    for (uint16_t& number : numbers) number = static_cast<uint16_t>((random() & 0x80ff) | 0x3f00);
    size_t filled = std::min(bytes, numbers.size() * sizeof(uint16_t));
    LOCKSTEP_CUDA(cudaMemcpyAsync(to, numbers.data(), filled, cudaMemcpyHostToDevice, stream));
    for (; filled < bytes; filled = std::min(bytes, 2 * filled))
      LOCKSTEP_CUDA(cudaMemcpyAsync(
          to + filled, to, std::min(filled, bytes - filled), cudaMemcpyDeviceToDevice, stream));
    LOCKSTEP_CUDA(cudaStreamSynchronize(stream));
  }

  DeviceArena memory_;
  std::vector<std::byte*> arrays_;
};

size_t matrix_bytes(
    int64_t rows, int64_t columns, int64_t stride, int64_t batch, int64_t between, DType dtype) {
  const int64_t elements =
      rows * std::max(stride, columns) + std::max<int64_t>(batch - 1, 0) * between;
  return static_cast<size_t>(elements) * size_of(dtype);
}

class Timer {
 public:
  Timer(const BackendOptions& options, const std::function<void()>& beat)
      : options_(options),
        beat_(beat),
        stream_(options.device),
        choices_(options.algorithm_facts),
        workspace_(reserve_workspace()),
        matmul_(stream_.get(),
                workspace_,
                [this](Matmul&, const Product& product) { return choose(product); }),
        convolution_(stream_.get(),
                     [this](CudnnConv2d&, const CudnnConv2dKey& key) { return choose(key); }),
        attention_(stream_.get()) {}

  // Meets the requests of all ops of the graph, as an executor does.
  void time(const graph::Graph& graph) {
    LaunchContext context = this->context();
    for (const graph::Op& op : graph.ops) op_set().choose(graph, op, &context);
  }

  std::string text() const { return choices_.text(); }

 private:
  LaunchContext context() {
    return {.stream = stream_.get(),
            .matmul = &matmul_,
            .cudnn_attention = &attention_,
            .cudnn_conv2d = &convolution_,
            .capability = options_.capability,
            .multiprocessors = options_.multiprocessors,
            .tf32 = options_.tf32,
            .lanes_per_pass = options_.lanes_per_pass};
  }

  struct Fastest {
    std::string algorithm;  // empty: none can run
    double ms = std::numeric_limits<double>::infinity(), first_ms = 0;
    size_t timed = 0;

    std::string comment() const {
      return fmt::format(
          "{:.4f} ms; the library's first: {:.4f} ms, of {} that were timed", ms, first_ms, timed);
    }
  };

  void* reserve_workspace() {
    memory_.reserve(Matmul::kWorkspaceBytes, stream_.get());
    return memory_.take(Matmul::kWorkspaceBytes, "the workspace");
  }

  // The median of several runs, in milliseconds.
  template <typename Run>
  double ms_of(const Run& run) {
    run();
    std::array<TimeMark, kRuns + 1> marks;
    marks[0].record(stream_.get());
    for (int i = 1; i <= kRuns; ++i) {
      run();
      marks[static_cast<size_t>(i)].record(stream_.get());
    }
    LOCKSTEP_CUDA(cudaStreamSynchronize(stream_.get()));
    std::array<double, kRuns> times{};
    for (size_t i = 0; i < kRuns; ++i) times[i] = marks[i].ms_until(marks[i + 1]);
    std::ranges::sort(times);
    return times[kRuns / 2];
  }

  // The fastest of those that `library` lets the request use, and of equally fast ones the first.
  template <typename Library, typename Key, typename Run>
  Fastest fastest(Library& library,
                  const Key& key,
                  const std::vector<std::string>& offers,
                  size_t max,
                  const Run& run) {
    Fastest best;
    for (const std::string& algorithm : offers) {
      if (best.timed == max || !library.use(key, algorithm).empty()) continue;
      double ms = 0;
      try {
        ms = ms_of(run);
      } catch (const Error&) {
        continue;  // the check passed, but the library rejects it now
      }
      if (best.timed++ == 0) best.first_ms = ms;
      if (ms < best.ms) best.ms = ms, best.algorithm = algorithm;
      beat_();
    }
    return best;
  }

  // Adds the choice for a request, and returns why it is not to run, or an empty string.
  template <typename Library, typename Key>
  std::string add(Library& library, const Key& key, AlgorithmChoices::Choice choice) {
    choices_.add(request_of(key), std::move(choice));
    return use_choice(choices_, library, key);
  }

  std::string choose(const Product& product) {
    std::string why_not;
    const std::vector<std::string> offers = matmul_.offers(product, why_not);
    if (offers.empty()) return add(matmul_, product, {kNoAlgorithm, why_not});
    const double plain_ms = ms_of_plain(product);  // first, for it allocates arrays of its own
    const Arrays arrays = arrays_of(product);
    const ProductOperands operands = operands_of(product, arrays);
    const auto run = [&] { matmul_.run(product, operands); };
    Fastest best = fastest(matmul_, product, offers, offers.size(), run);
    if (best.algorithm.empty()) best = fastest(matmul_, product, {kFirstAlgorithm}, 1, run);
    if (best.algorithm.empty()) return add(matmul_, product, {kNoAlgorithm, "it rejects its own"});
    times_[product] = best.ms;
    const double separate_ms =
        plain_ms < best.ms ? plain_ms + ms_of([&] { run_kernel(product, operands, arrays); })
                           : plain_ms;
    if (separate_ms < best.ms)
      return add(
          matmul_,
          product,
          {kSeparateKernels, fmt::format("{:.4f} ms, as one {:.4f} ms", separate_ms, best.ms)});
    return add(matmul_, product, {best.algorithm, best.comment()});
  }

  Arrays arrays_of(const Product& p) const {
    const bool ta = p.transpose_a, tb = p.transpose_b;
    const size_t out = matrix_bytes(p.m, p.n, p.stride_out, p.batch, p.batch_out, p.out);
    return Arrays(
        {matrix_bytes(ta ? p.k : p.m, ta ? p.m : p.k, p.stride_a, p.batch, p.batch_a, p.in),
         matrix_bytes(tb ? p.n : p.k, tb ? p.k : p.n, p.stride_b, p.batch, p.batch_b, p.in),
         out,
         static_cast<size_t>(std::max(p.m, p.n)) * sizeof(float),  // a bias, or its gradient
         p.epilogue == Epilogue::kNone ? 0 : out,                  // before the activation
         p.epilogue == Epilogue::kBiasGradient ? column_sum_workspace_bytes(p.k, p.m) : 0},
        stream_.get());
  }

  static ProductOperands operands_of(const Product& product, const Arrays& arrays) {
    ProductOperands operands{.a = arrays[0], .b = arrays[1], .out = arrays[2]};
    if (product.epilogue == Epilogue::kBiasGradient)
      operands.bias_gradient = reinterpret_cast<float*>(arrays[3]);
    else
      operands.bias = arrays[3];
    operands.saved = arrays[4];
    return operands;
  }

  // Milliseconds of the product without what the epilogue does besides adding a bias; infinity if
  // no kernel could do that after the product.
  double ms_of_plain(const Product& product) {
    Product plain = product;
    const bool has_bias = product.epilogue == Epilogue::kBiasRelu ||
                          product.epilogue == Epilogue::kBiasGelu ||
                          product.epilogue == Epilogue::kBiasGeluSaved;
    plain.epilogue = has_bias ? Epilogue::kBias : Epilogue::kNone;
    const bool is_plain = product.epilogue == Epilogue::kBias || plain == product;
    return is_plain || !matmul_.supports(plain) ? std::numeric_limits<double>::infinity()
                                                : times_.at(plain);
  }

  // What the epilogue does besides adding a bias.
  void run_kernel(const Product& product, const ProductOperands& operands, const Arrays& arrays) {
    const Activation activation =
        product.epilogue == Epilogue::kBiasRelu ? Activation::kRelu : Activation::kGeluTanh;
    const int64_t n = product.m * product.n;
    by_type(product.in, [&]<typename T>() {
      T* const out = static_cast<T*>(operands.out);
      const T* const saved = static_cast<const T*>(operands.saved);
      switch (product.epilogue) {
        case Epilogue::kBiasGradient:
          return column_sum<T>(static_cast<const T*>(operands.a),
                               product.k,
                               product.m,
                               std::max(product.stride_a, product.m),
                               false,
                               operands.bias_gradient,
                               reinterpret_cast<float*>(arrays[5]),
                               context());
        case Epilogue::kGeluGradient:
          return activation_backward<T>(
              {.activation = activation, .n = n, .d_y = out, .saved = saved, .d_x = out},
              stream_.get());
        default:
          return activation_forward<T>({.activation = activation, .n = n, .x = saved, .y = out},
                                       stream_.get());
      }
    });
  }

  std::string choose(const CudnnConv2dKey& key) {
    std::string why_not;
    const std::vector<std::string> offers = convolution_.offers(key, why_not);
    if (offers.empty()) return add(convolution_, key, {kNoAlgorithm, why_not});
    const graph::Conv2dShape& shape = key.shape;
    const auto bytes = [](int64_t elements, DType dtype) {
      return static_cast<size_t>(elements) * size_of(dtype);
    };
    const DType of_weights = key.wide ? DType::kF32 : key.dtype;
    const Arrays arrays({bytes(shape.pixels() * shape.channels, key.dtype),
                         bytes(shape.outputs * shape.patch(), of_weights),
                         bytes(shape.out_pixels() * shape.outputs, key.dtype),
                         bytes(shape.outputs, key.dtype),
                         cudnn_conv2d_workspace_bytes(key)},
                        stream_.get());
    const Fastest best = fastest(convolution_, key, offers, kEngines, [&] {
      convolution_.run(
          key,
          {.x = arrays[0], .w = arrays[1], .y = arrays[2], .bias = key.bias ? arrays[3] : nullptr},
          arrays[4]);
    });
    if (best.algorithm.empty())
      return add(convolution_, key, {kNoAlgorithm, "no engine of cuDNN is allowed"});
    return add(convolution_, key, {best.algorithm, best.comment()});
  }

  const BackendOptions& options_;
  const std::function<void()>& beat_;
  ScopedStream stream_;
  AlgorithmChoices choices_;
  std::map<Product, double> times_;  // of the fastest, in ms
  DeviceArena memory_;
  void* workspace_;
  Matmul matmul_;
  CudnnConv2d convolution_;
  CudnnAttention attention_;
};

}  // namespace

std::string time_algorithms(const BackendOptions& options,
                            std::span<const graph::Graph* const> graphs,
                            const std::function<void()>& beat) {
  Timer timer(options, beat);
  for (const graph::Graph* graph : graphs) timer.time(*graph);
  return timer.text();
}

}  // namespace lockstep::cuda
