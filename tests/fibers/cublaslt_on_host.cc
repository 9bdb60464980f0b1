// cuBLASLt on the host, as its documentation describes it: matrices by columns, D = epilogue(alpha
// op(A) op(B) + beta C). Plain loops in float. A product needs the algorithm that was found for it,
// operands that begin on multiples of 16 bytes, and counts on nothing in its workspace, which is
// spoiled. In the environment, to reach the paths for GPUs without them: FAKE_CUBLASLT_PLAIN, no
// epilogue but the bias; FAKE_CUBLASLT_REFUSES, words separated by commas: 11x9, no product with so
// many rows and columns; one, none with a single row or column; the name of an epilogue, such as
// DGELU; all. FAKE_CUBLASLT_VERSION, what it says of itself.
#include <cublasLt.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/base/half.h"
#include "tests/fibers/host_stream.h"

namespace {

using lockstep::BFloat16;
using lockstep::Float16;

struct LayoutImage {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t stride;
  int32_t batch = 1;
  int64_t batch_stride = 0;

  // Of matrix number `number`, in bytes.
  int64_t offset(int32_t number) const {
    return number * batch_stride * (type == CUDA_R_32F ? 4 : 2);
  }
};
struct Description {
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_stride = 0;
  cudaDataType_t bias_type = CUDA_R_32F;
};

const LayoutImage& layout_of(cublasLtMatrixLayout_t layout) {
  return *reinterpret_cast<const LayoutImage*>(layout);
}
Description& description_of(cublasLtMatmulDesc_t description) {
  return *reinterpret_cast<Description*>(description);
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

bool adds_bias(cublasLtEpilogue_t epilogue) {
  return epilogue != CUBLASLT_EPILOGUE_DEFAULT && epilogue != CUBLASLT_EPILOGUE_DGELU &&
         epilogue != CUBLASLT_EPILOGUE_BGRADB;
}

void multiply(const Description& description,
              float alpha,
              const void* a,
              const LayoutImage& a_layout,
              const void* b,
              const LayoutImage& b_layout,
              float beta,
              void* d,
              const LayoutImage& d_layout) {
  const auto m = static_cast<int64_t>(d_layout.rows), n = static_cast<int64_t>(d_layout.columns);
  const std::vector<float> left = unpack(a, a_layout, description.transpose_a);
  // Of b the transpose, so that both are read along rows.
  const std::vector<float> right =
      unpack(b, b_layout, description.transpose_b == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N);
  const int64_t k = static_cast<int64_t>(left.size()) / m;
  if (static_cast<int64_t>(right.size()) != k * n) std::abort();
  for (int64_t j = 0; description.epilogue == CUBLASLT_EPILOGUE_BGRADB && j < n; ++j) {
    float sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += right[static_cast<size_t>(j * k + p)];
    write(const_cast<void*>(description.bias), description.bias_type, j, sum);
  }
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < m; ++i) {
      float sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += left[static_cast<size_t>(i * k + p)] * right[static_cast<size_t>(j * k + p)];
      const int64_t at = j * d_layout.stride + i;
      sum *= alpha;
      if (beta != 0) sum += beta * read(d, d_layout.type, at);
      if (adds_bias(description.epilogue)) sum += read(description.bias, description.bias_type, i);
      switch (description.epilogue) {
        case CUBLASLT_EPILOGUE_RELU_BIAS: sum = sum > 0 ? sum : 0; break;
        case CUBLASLT_EPILOGUE_DGELU:
          sum *=
              gelu_gradient(read(description.aux, d_layout.type, j * description.aux_stride + i));
          break;
        case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
          write(description.aux, d_layout.type, j * description.aux_stride + i, sum);
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

// What stands for the algorithm that was found for a product.
cublasLtMatmulAlgo_t algorithm_for(const Description& description, const LayoutImage& d) {
  constexpr uint64_t kTag = 0x10c457e9;
  cublasLtMatmulAlgo_t algorithm{};
  algorithm.data[0] = kTag;
  algorithm.data[1] = static_cast<uint64_t>(description.epilogue);
  algorithm.data[2] = d.rows;
  algorithm.data[3] = d.columns;
  return algorithm;
}

// NaN at the start of each 64 KiB.
void spoil(void* workspace, size_t bytes) {
  constexpr size_t kStep = 65536, kSpoiled = 64;
  for (size_t at = 0; at + kSpoiled <= bytes; at += kStep)
    std::memset(static_cast<char*>(workspace) + at, 0xff, kSpoiled);
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
                                        cublasComputeType_t,
                                        cudaDataType_t) {
  *description = reinterpret_cast<cublasLtMatmulDesc_t>(new Description);
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
  *preference = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*,
                                                    size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t,
                                              cublasLtMatmulDesc_t handle,
                                              cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t d_layout,
                                              cublasLtMatmulPreference_t,
                                              int,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  if (lockstep::fibers::capturing()) return CUBLAS_STATUS_INTERNAL_ERROR;
  const Description& description = description_of(handle);
  const bool saves = description.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
                     description.epilogue == CUBLASLT_EPILOGUE_DGELU;
  const bool odd = saves && description.aux_stride % 8 != 0;
  const bool plain = description.epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
                     description.epilogue == CUBLASLT_EPILOGUE_BIAS;
  // By columns the rows of the product are columns.
  const LayoutImage& d = layout_of(d_layout);
  if (odd || refuses(description, d) || (!plain && std::getenv("FAKE_CUBLASLT_PLAIN") != nullptr)) {
    *found = 0;
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  *found = 1;
  results->state = CUBLAS_STATUS_SUCCESS;
  results->algo = algorithm_for(description, d);
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
  const void* const aux = description_of(description).aux;
  for (const void* operand : {a, b, c, static_cast<const void*>(d), aux}) {
    if (reinterpret_cast<uintptr_t>(operand) % 16 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const cublasLtMatmulAlgo_t wanted =
      algorithm_for(description_of(description), layout_of(d_layout));
  if (algorithm == nullptr || std::memcmp(algorithm, &wanted, sizeof(wanted)) != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (c != d) return CUBLAS_STATUS_NOT_SUPPORTED;
  const int32_t batch = layout_of(d_layout).batch;
  if (layout_of(a_layout).batch != batch || layout_of(b_layout).batch != batch)
    return CUBLAS_STATUS_INVALID_VALUE;
  lockstep::fibers::enqueue(
      stream,
      [=,
       how = description_of(description),
       alpha = *static_cast<const float*>(alpha),
       beta = *static_cast<const float*>(beta),
       in_a = layout_of(a_layout),
       in_b = layout_of(b_layout),
       out = layout_of(d_layout)] {
        spoil(workspace, workspace_bytes);
        const auto at = [](auto* array, const LayoutImage& layout, int32_t i) {
          using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(array)>>,
                                          const char,
                                          char>;
          return static_cast<Byte*>(array) + layout.offset(i);
        };
        for (int32_t i = 0; i < out.batch; ++i)
          multiply(
              how, alpha, at(a, in_a, i), in_a, at(b, in_b, i), in_b, beta, at(d, out, i), out);
      });
  return CUBLAS_STATUS_SUCCESS;
}
