// cuBLASLt on the host, as its documentation describes it: matrices by columns, D = epilogue(alpha
// op(A) op(B) + beta C). Plain loops in float. A product needs an algorithm that was found for it,
// and operands and a workspace as the preference promised them, or one that was made from its
// attributes; what it finds in the workspace is spoiled. Algorithms add in different orders. What
// has no algorithm: cublaslt_rules.h. In the environment, to reach the paths for GPUs without them:
// FAKE_CUBLASLT_PLAIN, no epilogue but the bias; FAKE_CUBLASLT_REFUSES, words separated by commas:
// 11x9, no product with so many rows and columns; one, none with a single row or column; the name
// of an epilogue, such as DGELU; all. FAKE_CUBLASLT_VERSION, what it says of itself.
// FAKE_CUBLASLT_MAKES_NONE, no algorithm is made from attributes.
#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/half.h"
#include "tests/fibers/cublaslt_rules.h"
#include "tests/fibers/host_stream.h"
#include "tests/fibers/kernel_memory.h"

namespace {

using lockstep::BFloat16;
using lockstep::Float16;
using lockstep::fibers::adds_bias;
using lockstep::fibers::algorithm_for;
using lockstep::fibers::Attributes;
using lockstep::fibers::attributes_of;
using lockstep::fibers::Description;
using lockstep::fibers::has_aux;
using lockstep::fibers::has_bias_vector;
using lockstep::fibers::LayoutImage;
using lockstep::fibers::number_of;
using lockstep::fibers::Preference;
using lockstep::fibers::ProductImage;
using lockstep::fibers::promised_to;
using lockstep::fibers::set_attributes;

const LayoutImage& layout_of(cublasLtMatrixLayout_t layout) {
  return *reinterpret_cast<const LayoutImage*>(layout);
}
Description& description_of(cublasLtMatmulDesc_t description) {
  return *reinterpret_cast<Description*>(description);
}

Preference& preference_of(cublasLtMatmulPreference_t preference) {
  return *reinterpret_cast<Preference*>(preference);
}
ProductImage product_of(cublasLtMatmulDesc_t description,
                        cublasLtMatrixLayout_t a,
                        cublasLtMatrixLayout_t b,
                        cublasLtMatrixLayout_t d) {
  return {description_of(description), layout_of(a), layout_of(b), layout_of(d)};
}

float read(const void* data, cudaDataType_t type, int64_t i) {
  switch (type) {
    case CUDA_R_16BF: return lockstep::to_float(static_cast<const BFloat16*>(data)[i]);
    case CUDA_R_16F: return lockstep::to_float(static_cast<const Float16*>(data)[i]);
    default: return static_cast<const float*>(data)[i];
  }
}
void write(void* data, cudaDataType_t type, int64_t i, float value) {
  switch (type) {
    case CUDA_R_16BF: static_cast<BFloat16*>(data)[i] = lockstep::round_to<BFloat16>(value); break;
    case CUDA_R_16F: static_cast<Float16*>(data)[i] = lockstep::round_to<Float16>(value); break;
    default: static_cast<float*>(data)[i] = value;
  }
}

float gelu(float x) {
  return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

float gelu_gradient(float x) {
  const float t = std::tanh(0.7978845608f * (x + 0.044715f * x * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

cudaDataType_t bias_type(const ProductImage& product) {
  return product.how.bias_type == -1 ? product.d.type
                                     : static_cast<cudaDataType_t>(product.how.bias_type);
}

// op(matrix) as plain rows of floats.
std::vector<float> unpack(const void* data, const LayoutImage& layout, cublasOperation_t op) {
  const auto rows = static_cast<int64_t>(layout.rows),
             columns = static_cast<int64_t>(layout.columns);
  std::vector<float> out(static_cast<size_t>(rows * columns));
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t to = op == CUBLAS_OP_N ? r * columns + c : c * rows + r;
      out[static_cast<size_t>(to)] = read(data, layout.type, c * layout.stride + r);
    }
  }
  return out;
}

// out (m, n) += the sums over p in [begin, end) of a (k, m) times b (k, n), each in the order of p,
// or backwards; the second index is the innermost, so that the compiler's vectors hold neighbouring
// sums.
void add_products(const std::vector<float>& a,
                  const std::vector<float>& b,
                  int64_t m,
                  int64_t n,
                  int64_t begin,
                  int64_t end,
                  bool backwards,
                  std::vector<float>& out) {
  for (int64_t i = 0; i < m; ++i) {
    float* const row = out.data() + i * n;
    for (int64_t q = begin; q < end; ++q) {
      const int64_t p = backwards ? begin + end - 1 - q : q;
      const float factor = a[static_cast<size_t>(p * m + i)];
      const float* const from = b.data() + p * n;
      for (int64_t j = 0; j < n; ++j) row[j] += factor * from[j];
    }
  }
}

// The same for all p, in the order of the algorithm.
std::vector<float> products(const std::vector<float>& a,
                            const std::vector<float>& b,
                            int64_t m,
                            int64_t n,
                            int64_t k,
                            int algorithm) {
  std::vector<float> out(static_cast<size_t>(m * n));
  const int64_t half = algorithm == lockstep::fibers::kInHalves ? k / 2 : k;
  add_products(a, b, m, n, 0, half, algorithm == lockstep::fibers::kBackwards, out);
  if (half == k) return out;
  std::vector<float> second(out.size());
  add_products(a, b, m, n, half, k, false, second);
  for (size_t i = 0; i < out.size(); ++i) out[i] += second[i];
  return out;
}

void multiply(const ProductImage& product,
              int algorithm,
              float alpha,
              const void* a,
              const void* b,
              float beta,
              void* d) {
  const auto& [how, a_layout, b_layout, d_layout] = product;
  const auto m = static_cast<int64_t>(d_layout.rows), n = static_cast<int64_t>(d_layout.columns);
  // Both with their sums' index outermost.
  const std::vector<float> left =
      unpack(a, a_layout, how.transpose_a == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N);
  const std::vector<float> right = unpack(b, b_layout, how.transpose_b);
  const int64_t k = static_cast<int64_t>(left.size()) / m;
  for (int64_t j = 0; how.epilogue == CUBLASLT_EPILOGUE_BGRADB && j < n; ++j) {
    float sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += right[static_cast<size_t>(p * n + j)];
    write(const_cast<void*>(how.bias), bias_type(product), j, sum);
  }
  const bool by_columns = m >= n;
  const std::vector<float> sums = by_columns ? products(right, left, n, m, k, algorithm)
                                             : products(left, right, m, n, k, algorithm);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < m; ++i) {
      const int64_t at = j * d_layout.stride + i;
      float sum = alpha * sums[static_cast<size_t>(by_columns ? j * m + i : i * n + j)];
      if (beta != 0) sum += beta * read(d, d_layout.type, at);
      if (adds_bias(how.epilogue)) sum += read(how.bias, bias_type(product), i);
      const int64_t aux_at = j * how.aux_stride + i;
      switch (how.epilogue) {
        case CUBLASLT_EPILOGUE_RELU_BIAS: sum = sum > 0 ? sum : 0; break;
        case CUBLASLT_EPILOGUE_DGELU:
          sum *= gelu_gradient(read(how.aux, d_layout.type, aux_at));
          break;
        case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
          write(how.aux, d_layout.type, aux_at, sum);
          [[fallthrough]];
        case CUBLASLT_EPILOGUE_GELU_BIAS: sum = gelu(sum); break;
        default: break;
      }
      write(d, d_layout.type, at, sum);
    }
  }
}

const char* name_of(cublasLtEpilogue_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_BIAS: return "BIAS";
    case CUBLASLT_EPILOGUE_RELU_BIAS: return "RELU_BIAS";
    case CUBLASLT_EPILOGUE_GELU_BIAS: return "GELU_BIAS";
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS: return "GELU_AUX_BIAS";
    case CUBLASLT_EPILOGUE_DGELU: return "DGELU";
    case CUBLASLT_EPILOGUE_BGRADB: return "BGRADB";
    default: return "DEFAULT";
  }
}

// Whether the environment says that there is no algorithm. By columns the rows of the product are
// columns.
bool refuses(const Description& description, const LayoutImage& d) {
  const char* const refused = std::getenv("FAKE_CUBLASLT_REFUSES");
  if (refused == nullptr) return false;
  std::istringstream words(refused);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "all" || word == name_of(description.epilogue) ||
        word == std::to_string(d.columns) + "x" + std::to_string(d.rows) ||
        (word == "one" && (d.columns == 1 || d.rows == 1)))
      return true;
  }
  return false;
}

// NaN at the start of each 64 KiB.
void spoil(void* workspace, size_t bytes) {
  constexpr size_t kStep = 65536, kSpoiled = 64;
  for (size_t at = 0; at + kSpoiled <= bytes; at += kStep)
    std::memset(static_cast<char*>(workspace) + at, 0xff, kSpoiled);
}

// Whether each matrix of a batch begins where the algorithm counts on it.
bool aligned(const void* first, const LayoutImage& layout, uint32_t alignment) {
  const auto at = reinterpret_cast<uintptr_t>(first);
  return at % alignment == 0 &&
         (layout.batch == 1 || static_cast<uintptr_t>(layout.offset(1)) % alignment == 0);
}

// The heuristic's algorithms, by their mark, and the products for which AlgoCheck has accepted them
// besides that which they were found for, by the mark that the heuristic would give.
std::set<std::pair<uint64_t, uint64_t>> accepted;

uint64_t mark_for(const ProductImage& product, const cublasLtMatmulAlgo_t& algorithm) {
  return lockstep::fibers::algorithm_for(product, promised_to(algorithm)).data[0];
}

}  // namespace

size_t cublasLtGetVersion() {
  const char* const version = std::getenv("FAKE_CUBLASLT_VERSION");
  return version == nullptr ? 130000 : static_cast<size_t>(std::atol(version));
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "an error of the stand-in"; }
const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                          cudaDataType type,
                                          uint64_t rows,
                                          uint64_t columns,
                                          int64_t ld) {
  if (ld < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new LayoutImage{type, rows, columns, ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value,
                                                size_t bytes) {
  LayoutImage& layout = *reinterpret_cast<LayoutImage*>(handle);
  const auto set = [&](auto& field) {
    if (sizeof(field) != bytes) std::abort();
    std::memcpy(&field, value, bytes);
  };
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: set(layout.batch); break;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: set(layout.batch_stride); break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<LayoutImage*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *description = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{.compute = compute});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete reinterpret_cast<Description*>(description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value,
                                              size_t bytes) {
  Description& description = description_of(handle);
  const auto set = [&](auto& field) {
    if (sizeof(field) != bytes) std::abort();
    field = *static_cast<const std::remove_reference_t<decltype(field)>*>(value);
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: set(description.transpose_a); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: set(description.transpose_b); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: set(description.epilogue); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: set(description.bias); break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: set(description.bias_type); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: set(description.aux); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: set(description.aux_stride); break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<Preference*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value,
                                                    size_t bytes) {
  Preference& preference = preference_of(handle);
  const auto set = [&](auto& field) {
    if (sizeof(field) != bytes) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(preference.workspace_bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(preference.alignment[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(preference.alignment[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(preference.alignment[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(preference.alignment[3]);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set(preference.reductions);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t,
                                              cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t handle,
                                              int max,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  if (lockstep::fibers::capturing()) return CUBLAS_STATUS_INTERNAL_ERROR;
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const Preference& preference = preference_of(handle);
  const ProductImage product = product_of(description, a, b, d);
  const cublasStatus_t status = status_of(product);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const bool plain = product.how.epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
                     product.how.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (refuses(product.how, product.d) || (!plain && std::getenv("FAKE_CUBLASLT_PLAIN") != nullptr))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (int number = 0; number < lockstep::fibers::kNoSuchAlgorithm && *found < max; ++number) {
    const Attributes& attributes = lockstep::fibers::kAlgorithms[number];
    if ((attributes.reduction & ~preference.reductions) != 0 ||
        workspace_of(number, product) > preference.workspace_bytes)
      continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    result.state = CUBLAS_STATUS_SUCCESS;
    result.algo = algorithm_for(product, preference);
    set_attributes(attributes, result.algo);
    result.workspaceSize = preference.workspace_bytes;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t,
                                      cublasComputeType_t,
                                      cudaDataType_t scale,
                                      cudaDataType_t a,
                                      cudaDataType_t b,
                                      cudaDataType_t c,
                                      cudaDataType_t d,
                                      int id,
                                      cublasLtMatmulAlgo_t* algorithm) {
  if (scale != CUDA_R_32F || a != b || c != d || std::getenv("FAKE_CUBLASLT_MAKES_NONE") != nullptr)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto has_id = [&](const Attributes& of) { return of.id == static_cast<uint32_t>(id); };
  if (std::ranges::none_of(lockstep::fibers::kAlgorithms, has_id))
    return CUBLAS_STATUS_INVALID_VALUE;
  *algorithm = {};
  set_attributes({.id = static_cast<uint32_t>(id)}, *algorithm);
  return CUBLAS_STATUS_SUCCESS;
}

// Calls f with the attribute of `attributes`; returns its result.
template <typename F>
static cublasStatus_t with_attribute(Attributes& attributes,
                                     cublasLtMatmulAlgoConfigAttributes_t attribute,
                                     size_t bytes,
                                     F f) {
  const auto call = [&](auto& field) {
    return sizeof(field) == bytes ? f(&field) : CUBLAS_STATUS_INVALID_VALUE;
  };
  switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID: return call(attributes.id);
    case CUBLASLT_ALGO_CONFIG_TILE_ID: return call(attributes.tile);
    case CUBLASLT_ALGO_CONFIG_STAGES_ID: return call(attributes.stages);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM: return call(attributes.split);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME: return call(attributes.reduction);
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING: return call(attributes.swizzle);
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION: return call(attributes.custom);
    case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID: return call(attributes.inner);
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID: return call(attributes.cluster);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}
cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    const void* value,
                                                    size_t bytes) {
  if (attribute == CUBLASLT_ALGO_CONFIG_ID) return CUBLAS_STATUS_INVALID_VALUE;  // read-only
  Attributes attributes = attributes_of(*algorithm);
  const cublasStatus_t status = with_attribute(attributes, attribute, bytes, [&](void* field) {
    std::memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  });
  set_attributes(attributes, *algorithm);
  return status;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value,
                                                    size_t bytes,
                                                    size_t* written) {
  Attributes attributes = attributes_of(*algorithm);
  *written = bytes;
  return with_attribute(attributes, attribute, bytes, [&](const void* field) {
    std::memcpy(value, field, bytes);
    return CUBLAS_STATUS_SUCCESS;
  });
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t,
                                       cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (lockstep::fibers::capturing()) return CUBLAS_STATUS_INTERNAL_ERROR;
  const ProductImage product = product_of(description, a, b, d);
  const cublasStatus_t status = status_of(product);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const int number = number_of(*algorithm);
  if (number == lockstep::fibers::kNoSuchAlgorithm || refuses(product.how, product.d))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  result->state = CUBLAS_STATUS_SUCCESS;
  result->workspaceSize = workspace_of(number, product);
  accepted.insert({algorithm->data[0], mark_for(product, *algorithm)});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t,
                              cublasLtMatmulDesc_t description,
                              const void* alpha,
                              const void* a,
                              cublasLtMatrixLayout_t a_layout,
                              const void* b,
                              cublasLtMatrixLayout_t b_layout,
                              const void* beta,
                              const void* c,
                              cublasLtMatrixLayout_t,
                              void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace,
                              size_t workspace_bytes,
                              cudaStream_t stream) {
  const ProductImage product = product_of(description, a_layout, b_layout, d_layout);
  // An algorithm that was not found for this product, which none may have been.
  if (algorithm == nullptr || status_of(product) != CUBLAS_STATUS_SUCCESS)
    return CUBLAS_STATUS_INVALID_VALUE;
  const int number = number_of(*algorithm);
  if (number == lockstep::fibers::kNoSuchAlgorithm) return CUBLAS_STATUS_INVALID_VALUE;
  Preference found = promised_to(*algorithm);
  const uint64_t mark = mark_for(product, *algorithm);
  if (algorithm->data[0] == 0 ||
      (algorithm->data[0] != mark && accepted.contains({algorithm->data[0], mark}))) {
    found = {.workspace_bytes = workspace_of(number, product), .alignment = {1, 1, 1, 1}};
  } else if (algorithm->data[0] != mark) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const Description& how = product.how;
  if (!aligned(a, product.a, found.alignment[0]) || !aligned(b, product.b, found.alignment[1]) ||
      !aligned(d, product.d, found.alignment[3]) || workspace_bytes < found.workspace_bytes ||
      reinterpret_cast<uintptr_t>(workspace) % 16 != 0 ||
      (has_bias_vector(how.epilogue) && reinterpret_cast<uintptr_t>(how.bias) % 16 != 0) ||
      (has_aux(how.epilogue) && reinterpret_cast<uintptr_t>(how.aux) % 16 != 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (c != d) return CUBLAS_STATUS_NOT_SUPPORTED;
  lockstep::fibers::check_arrays("cublasLtMatmul", {a, b, d, how.bias, how.aux, workspace});
  lockstep::fibers::enqueue(
      stream,
      [=, alpha = *static_cast<const float*>(alpha), beta = *static_cast<const float*>(beta)] {
        lockstep::fibers::spent_ms += milliseconds(number, product);
        spoil(workspace, found.workspace_bytes);
        for (int32_t i = 0; i < product.d.batch; ++i)
          multiply(product,
                   number,
                   alpha,
                   static_cast<const char*>(a) + product.a.offset(i),
                   static_cast<const char*>(b) + product.b.offset(i),
                   beta,
                   static_cast<char*>(d) + product.d.offset(i));
      });
  return CUBLAS_STATUS_SUCCESS;
}
