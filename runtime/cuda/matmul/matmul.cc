#include "runtime/cuda/matmul/matmul.h"

#include <cublasLt.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/cuda/algorithm_choices.h"
#include "runtime/cuda/matmul/algorithm_text.h"

namespace lockstep::cuda {
namespace {

void check(cublasStatus_t status, const char* expression, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ExitCode::kInternal,
              fmt::format("{}:{}: {} failed: {} ({})",
                          __FILE__,
                          line,
                          expression,
                          cublasLtGetStatusString(status),
                          cublasLtGetStatusName(status)));
}
#define LOCKSTEP_CUBLAS(call) check((call), #call, __LINE__)

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return CUDA_R_32F;
    case DType::kBF16: return CUDA_R_16BF;
    case DType::kF16: return CUDA_R_16F;
    default: LOCKSTEP_CHECK(false, "no products of {}", name_of(dtype));
  }
}

cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone: return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kBias: return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kBiasRelu: return CUBLASLT_EPILOGUE_RELU_BIAS;
    case Epilogue::kBiasGelu: return CUBLASLT_EPILOGUE_GELU_BIAS;
    case Epilogue::kBiasGeluSaved: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kGeluGradient: return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::kBiasGradient: return CUBLASLT_EPILOGUE_BGRADB;  // a is cuBLASLt's B
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

cublasComputeType_t compute_type(const Product& product) {
  return product.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

bool has_saved(Epilogue epilogue) {
  return epilogue == Epilogue::kBiasGeluSaved || epilogue == Epilogue::kGeluGradient;
}

// A row-major matrix as the transposed column-major matrix that cuBLASLt expects.
class Layout {
 public:
  Layout(DType dtype,
         int64_t stored_rows,
         int64_t stored_columns,
         int64_t stride,
         int64_t batch,
         int64_t batch_stride) {
    LOCKSTEP_CUBLAS(cublasLtMatrixLayoutCreate(&layout_,
                                               data_type(dtype),
                                               static_cast<uint64_t>(stored_columns),
                                               static_cast<uint64_t>(stored_rows),
                                               stride > 0 ? stride : stored_columns));
    if (batch == 1) return;
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride);
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  template <typename T>
  void set(cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
    LOCKSTEP_CUBLAS(cublasLtMatrixLayoutSetAttribute(layout_, attribute, &value, sizeof(value)));
  }

  cublasLtMatrixLayout_t layout_ = nullptr;
};

class Description {
 public:
  explicit Description(const Product& product) {
    LOCKSTEP_CUBLAS(cublasLtMatmulDescCreate(&description_, compute_type(product), CUDA_R_32F));
    // out^T = op(b)^T op(a)^T, so b comes first. A row-major matrix read as column-major is its
    // transpose, so a matrix that is not transposed needs no transposition here either.
    set(CUBLASLT_MATMUL_DESC_TRANSA, product.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, product.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (product.epilogue == Epilogue::kNone) return;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(product.epilogue));
    // The heuristic takes the alignment of the arrays into account; all of them are aligned like
    // this.
    const void* const aligned = reinterpret_cast<const void*>(uintptr_t{256});
    if (product.epilogue != Epilogue::kGeluGradient) {
      const bool gradient = product.epilogue == Epilogue::kBiasGradient;
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(gradient ? DType::kF32 : product.in));
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned);
    }
    if (!has_saved(product.epilogue)) return;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product.n);  // in elements of the output's type
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  ~Description() { cublasLtMatmulDescDestroy(description_); }

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    LOCKSTEP_CUBLAS(cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof(value)));
  }
  cublasLtMatmulDesc_t get() const { return description_; }

 private:
  cublasLtMatmulDesc_t description_ = nullptr;
};

class Preference {
 public:
  Preference() { LOCKSTEP_CUBLAS(cublasLtMatmulPreferenceCreate(&preference_)); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  ~Preference() { cublasLtMatmulPreferenceDestroy(preference_); }
  template <typename T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    LOCKSTEP_CUBLAS(
        cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof(value)));
  }
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  cublasLtMatmulPreference_t preference_ = nullptr;
};

// The same product for so many lanes, which are a whole pass.
Product of_lanes(const Product& product, int64_t lanes) {
  Product other = product;
  other.lanes = other.pass = 1;
  if (product.lanes_are == Product::Lanes::kRows) {
    other.m = product.m / product.lanes * lanes;
    return other;
  }
  const auto elements = [](int64_t rows, int64_t stride, int64_t columns) {
    return rows * (stride > 0 ? stride : columns);
  };
  const auto& [m, n, k] = std::tie(product.m, product.n, product.k);
  other.batch = lanes;
  if (lanes == 1) {
    other.batch_a = other.batch_b = other.batch_out = 0;
    return other;
  }
  other.batch_a =
      product.transpose_a ? elements(k, product.stride_a, m) : elements(m, product.stride_a, k);
  other.batch_b =
      product.transpose_b ? elements(n, product.stride_b, k) : elements(k, product.stride_b, n);
  other.batch_out = elements(m, product.stride_out, n);
  return other;
}

}  // namespace

struct Matmul::Library {
  Library() { LOCKSTEP_CUBLAS(cublasLtCreate(&handle)); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() { cublasLtDestroy(handle); }
  cublasLtHandle_t handle = nullptr;
};

struct Matmul::Planned {
  explicit Planned(const Product& p)
      : description(p),
        a(p.in,
          p.transpose_a ? p.k : p.m,
          p.transpose_a ? p.m : p.k,
          p.stride_a,
          p.batch,
          p.batch_a),
        b(p.in,
          p.transpose_b ? p.n : p.k,
          p.transpose_b ? p.k : p.n,
          p.stride_b,
          p.batch,
          p.batch_b),
        out(p.out, p.m, p.n, p.stride_out, p.batch, p.batch_out) {}

  // Finds up to `max` algorithms, the first of them by the heuristic's estimate. Returns why there
  // are none, or an empty string.
  std::string find(cublasLtHandle_t handle,
                   const Product& product,
                   int max,
                   std::vector<cublasLtMatmulAlgo_t>& algorithms) const;
  // Sets the first of these, or the algorithm of a text. Returns why it cannot run the product, or
  // an empty string.
  std::string set_first(cublasLtHandle_t handle, const Product& product);
  std::string set(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& other);
  std::string set(cublasLtHandle_t handle, const Product& product, const std::string& text);

  Description description;
  Layout a, b, out;
  cublasLtMatmulAlgo_t algorithm{};
  bool is_chosen = false, is_of_pass = false;
  std::string why_not;  // why there is no algorithm; empty if there is one
};

std::string Matmul::Planned::find(cublasLtHandle_t handle,
                                  const Product& product,
                                  int max,
                                  std::vector<cublasLtMatmulAlgo_t>& algorithms) const {
  constexpr int64_t kSavedMultiple = 8;  // of the rows that an epilogue saves
  if (has_saved(product.epilogue) && product.n % kSavedMultiple != 0)
    return "rows that an epilogue saves must be multiples of 8";
  Preference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  // A product that is split along k is summed in the workspace, in order; otherwise it is not
  // split.
  const uint32_t reductions =
      CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  // The first matrix of a batch is aligned to 16 bytes, the others as the batch stride allows. b is
  // cuBLASLt's A.
  const auto alignment = [](DType dtype, int64_t batch_stride) {
    return static_cast<uint32_t>(
        std::gcd(batch_stride * static_cast<int64_t>(size_of(dtype)), int64_t{16}));
  };
  const uint32_t out_alignment = alignment(product.out, product.batch_out);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                 alignment(product.in, product.batch_b));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                 alignment(product.in, product.batch_a));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out_alignment);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out_alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(max));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle,
                                                               description.get(),
                                                               b.get(),
                                                               a.get(),
                                                               out.get(),
                                                               out.get(),
                                                               preference.get(),
                                                               max,
                                                               results.data(),
                                                               &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
    return cublasLtGetStatusName(status);
  LOCKSTEP_CUBLAS(status);
  results.resize(static_cast<size_t>(found));
  for (const cublasLtMatmulHeuristicResult_t& result : results) {
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  return algorithms.empty() ? "its heuristic finds none" : "";
}

std::string Matmul::Planned::set_first(cublasLtHandle_t handle, const Product& product) {
  std::vector<cublasLtMatmulAlgo_t> first;
  std::string refusal = find(handle, product, 1, first);
  if (refusal.empty()) algorithm = first[0];
  return refusal;
}

std::string Matmul::Planned::set(cublasLtHandle_t handle,
                                 const Product& product,
                                 const std::string& text) {
  const cudaDataType_t in = data_type(product.in);
  cublasLtMatmulAlgo_t made{};
  std::string refusal = make_algorithm(
      handle, {compute_type(product), CUDA_R_32F, in, in, data_type(product.out)}, text, made);
  return refusal.empty() ? set(handle, made) : refusal;
}

std::string Matmul::Planned::set(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& other) {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(
      handle, description.get(), b.get(), a.get(), out.get(), out.get(), &other, &result);
  if (status != CUBLAS_STATUS_SUCCESS) return cublasLtGetStatusName(status);
  if (result.workspaceSize > kWorkspaceBytes)
    return fmt::format("it needs {} bytes of workspace, but {} are reserved",
                       result.workspaceSize,
                       kWorkspaceBytes);
  algorithm = other;
  return "";
}

Matmul::Matmul(Stream stream, void* workspace, Choose choose)
    : library_(std::make_unique<Library>()),
      stream_(stream),
      workspace_(workspace),
      choose_(std::move(choose)) {}

Matmul::~Matmul() = default;

Matmul::Planned& Matmul::described(const Product& product) {
  std::unique_ptr<Planned>& planned = planned_[product];
  if (!planned) planned = std::make_unique<Planned>(product);
  return *planned;
}

Matmul::Planned& Matmul::plan(const Product& product) {
  Planned& planned = described(product);
  if (planned.is_chosen) return planned;
  planned.why_not = product.pass > 1 ? choose_of_pass(product, planned) : choose(product, planned);
  planned.is_chosen = true;
  return planned;
}

std::string Matmul::choose(const Product& product, Planned& planned) {
  return choose_ ? choose_(*this, product) : planned.set_first(library_->handle, product);
}

std::string Matmul::choose_of_pass(const Product& product, Planned& planned) {
  const Planned& whole = plan(of_lanes(product, product.pass));
  std::string refusal =
      whole.why_not.empty() ? planned.set(library_->handle, whole.algorithm) : whole.why_not;
  planned.is_of_pass = refusal.empty();
  if (product.lanes == 1) return refusal.empty() ? refusal : choose(product, planned);
  Product one = of_lanes(product, 1);
  one.pass = product.pass;
  if (refusal.empty() && !plan(one).is_of_pass) refusal = "single lanes take another algorithm";
  return refusal;
}

std::vector<std::string> Matmul::offers(const Product& product, std::string& why_not) {
  constexpr int kMax = 16;
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  why_not = described(product).find(library_->handle, product, kMax, algorithms);
  std::vector<std::string> texts;
  for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
    std::string text = text_of(algorithm);
    if (std::ranges::find(texts, text) == texts.end()) texts.push_back(std::move(text));
  }
  return texts;
}

std::string Matmul::use(const Product& product, const std::string& algorithm) {
  Planned& planned = described(product);
  std::string refusal = algorithm == kFirstAlgorithm
                            ? planned.set_first(library_->handle, product)
                            : planned.set(library_->handle, product, algorithm);
  if (refusal.empty()) planned.is_chosen = true;
  return refusal;
}

const std::string& Matmul::why_not(const Product& product) { return plan(product).why_not; }

void Matmul::run(const Product& product, const ProductOperands& operands) {
  Planned& planned = plan(product);
  LOCKSTEP_CHECK(planned.why_not.empty());
  if (product.epilogue == Epilogue::kBiasGradient)
    planned.description.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias_gradient);
  else if (product.epilogue != Epilogue::kNone && product.epilogue != Epilogue::kGeluGradient)
    planned.description.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  if (has_saved(product.epilogue))
    planned.description.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.saved);
  const float alpha = operands.scale, beta = product.accumulate ? 1.0f : 0.0f;
  LOCKSTEP_CUBLAS(cublasLtMatmul(library_->handle,
                                 planned.description.get(),
                                 &alpha,
                                 operands.b,
                                 planned.b.get(),
                                 operands.a,
                                 planned.a.get(),
                                 &beta,
                                 operands.out,
                                 planned.out.get(),
                                 operands.out,
                                 planned.out.get(),
                                 &planned.algorithm,
                                 workspace_,
                                 kWorkspaceBytes,
                                 stream_));
}

}  // namespace lockstep::cuda
