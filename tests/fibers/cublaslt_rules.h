#pragma once
// What cuBLASLt's header says that a product needs: which types, leading dimensions, alignments and
// workspace go with which epilogue.

#include <cublasLt.h>

#include <cstdint>
#include <cstring>

namespace lockstep::fibers {

struct LayoutImage {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t stride;
  int32_t batch = 1;
  int64_t batch_stride = 0;

  int64_t element_bytes() const { return type == CUDA_R_32F ? 4 : 2; }
  // Of matrix number `number`, in bytes.
  int64_t offset(int32_t number) const { return number * batch_stride * element_bytes(); }
};

struct Description {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_stride = 0;
  int32_t bias_type = -1;  // that of D
};

struct Preference {
  uint64_t workspace_bytes = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;  // those that are allowed
  uint32_t alignment[4] = {256, 256, 256, 256};          // of A, B, C and D
};

// A product, as far as an algorithm depends on it.
struct ProductImage {
  Description how;
  LayoutImage a, b, d;
};

inline bool adds_bias(cublasLtEpilogue_t epilogue) {
  return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
}
inline bool has_aux(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DGELU;
}
inline bool has_bias_vector(cublasLtEpilogue_t epilogue) {
  return adds_bias(epilogue) || epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

// CUBLAS_STATUS_SUCCESS, or why there is no algorithm: the product contradicts itself
// (CUBLAS_STATUS_INVALID_VALUE), or none is made for it.
inline cublasStatus_t status_of(const ProductImage& product) {
  const auto& [how, a, b, d] = product;
  const auto outer = [](const LayoutImage& matrix, bool plain) {
    return plain ? matrix.rows : matrix.columns;
  };
  const bool plain_a = how.transpose_a == CUBLAS_OP_N, plain_b = how.transpose_b == CUBLAS_OP_N;
  if (outer(a, plain_a) != d.rows || outer(b, !plain_b) != d.columns ||
      outer(a, !plain_a) != outer(b, plain_b) || a.batch != d.batch || b.batch != d.batch)
    return CUBLAS_STATUS_INVALID_VALUE;
  // Inputs of one type; the output has it too, or is of floats. Only floats become TF32.
  if (a.type != b.type || (d.type != a.type && d.type != CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (how.compute != CUBLAS_COMPUTE_32F &&
      (how.compute != CUBLAS_COMPUTE_32F_FAST_TF32 || a.type != CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  switch (how.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT: return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_BGRADB: break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  // The strides of a batch's vectors are not set.
  if (d.batch != 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (has_bias_vector(how.epilogue)) {
    if (how.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    if (how.bias_type != -1 && how.bias_type != d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (has_aux(how.epilogue)) {
    if (how.aux == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    if (how.aux_stride % 8 != 0 || how.aux_stride < static_cast<int64_t>(d.rows))
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

// The attributes of an algorithm, in the last words of cublasLtMatmulAlgo_t.
struct Attributes {
  uint32_t id = 0, tile = 0, stages = 0, split = 1, reduction = 0, swizzle = 0, custom = 0;
  uint16_t inner = 0, cluster = 0;

  bool operator==(const Attributes&) const = default;
};
static_assert(sizeof(Attributes) == 4 * sizeof(uint64_t));

// The algorithms that there are, the heuristic's favourite first. Each adds in an order of its own:
// of k, of two halves of k, of k backwards, and one that nobody knows.
inline constexpr Attributes kAlgorithms[] = {
    {.id = 20, .tile = 18, .stages = 4},
    {.id = 20, .tile = 18, .stages = 4, .split = 2, .reduction = 2},
    {.id = 66, .tile = 20, .stages = 36, .inner = 1, .cluster = 2},
    {.id = 20, .tile = 18, .stages = 4, .split = 4, .reduction = 1}};
enum { kInOrder, kInHalves, kBackwards, kInPlace, kNoSuchAlgorithm };

inline Attributes attributes_of(const cublasLtMatmulAlgo_t& algorithm) {
  Attributes attributes;
  std::memcpy(static_cast<void*>(&attributes), &algorithm.data[4], sizeof(attributes));
  return attributes;
}
inline void set_attributes(const Attributes& attributes, cublasLtMatmulAlgo_t& algorithm) {
  std::memcpy(&algorithm.data[4], &attributes, sizeof(attributes));
}
// Which of kAlgorithms it is, or kNoSuchAlgorithm.
inline int number_of(const cublasLtMatmulAlgo_t& algorithm) {
  int number = 0;
  while (number < kNoSuchAlgorithm && kAlgorithms[number] != attributes_of(algorithm)) ++number;
  return number;
}
// The bytes of workspace that it needs for the product.
inline uint64_t workspace_of(int number, const ProductImage& product) {
  const uint64_t parts = kAlgorithms[number].split;
  return parts == 1 ? 0 : parts * product.d.rows * product.d.columns * sizeof(float);
}
// What the product takes on the GPU that is played, in ms: the heuristic's favourite is the
// slowest, and it depends on the shape which is the fastest. Some epilogues take longer than a
// kernel after the product would.
inline double milliseconds(int number, const ProductImage& product) {
  constexpr double kUnit = 1000;
  const bool wide = product.d.rows > product.d.columns;
  const bool slow = product.how.epilogue == CUBLASLT_EPILOGUE_DGELU ||
                    product.how.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
  const bool fast = product.how.epilogue == CUBLASLT_EPILOGUE_BGRADB;
  const double times[] = {3, wide ? 1.0 : 2.0, wide ? 2.0 : 1.0, 0.5};
  return kUnit * (times[number] + (slow ? 0.5 : 0) - (fast ? 0.25 : 0));
}

// What stands for the algorithm that was found for a product: a summary of it, and what it counts
// on. One that was made from its attributes has 0 in place of the summary, and promises nothing.
inline cublasLtMatmulAlgo_t algorithm_for(const ProductImage& product,
                                          const Preference& preference) {
  uint64_t summary = 0x10c457e9;
  const auto add = [&](auto value) {
    summary = (summary ^ static_cast<uint64_t>(value)) * 0x100000001b3;
  };
  const auto& how = product.how;
  for (const auto value : {static_cast<int64_t>(how.compute),
                           static_cast<int64_t>(how.transpose_a),
                           static_cast<int64_t>(how.transpose_b),
                           static_cast<int64_t>(how.epilogue),
                           has_aux(how.epilogue) ? how.aux_stride : 0})
    add(value);
  for (const LayoutImage& matrix : {product.a, product.b, product.d}) {
    add(matrix.type);
    add(matrix.rows);
    add(matrix.columns);
    add(matrix.stride);
    add(matrix.batch);
    add(matrix.batch_stride);
  }
  cublasLtMatmulAlgo_t algorithm{};
  algorithm.data[0] = summary;
  algorithm.data[1] = preference.workspace_bytes;
  std::memcpy(&algorithm.data[2], preference.alignment, sizeof(preference.alignment));
  return algorithm;
}

// What it counts on.
inline Preference promised_to(const cublasLtMatmulAlgo_t& algorithm) {
  Preference preference;
  preference.workspace_bytes = algorithm.data[1];
  std::memcpy(preference.alignment, &algorithm.data[2], sizeof(preference.alignment));
  return preference;
}

}  // namespace lockstep::fibers
