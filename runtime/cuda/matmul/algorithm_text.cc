#include "runtime/cuda/matmul/algorithm_text.h"

#include <fmt/core.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "runtime/base/text.h"

namespace lockstep::cuda {
namespace {

struct Attribute {
  const char* name;
  cublasLtMatmulAlgoConfigAttributes_t attribute;
  size_t bytes;
};

constexpr Attribute kAttributes[] = {
    {"id", CUBLASLT_ALGO_CONFIG_ID, 4},  // set when the algorithm is made
    {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
    {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    {"split", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
    {"reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
    {"swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
    {"custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
    {"inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
    {"cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
};

}  // namespace

std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const Attribute& of : kAttributes) {
    uint32_t value = 0;  // little-endian, so that two bytes are its lower half
    size_t written = 0;
    if (cublasLtMatmulAlgoConfigGetAttribute(
            &algorithm, of.attribute, &value, of.bytes, &written) != CUBLAS_STATUS_SUCCESS)
      return "";
    append_item(text, fmt::format("{}={}", of.name, value), " ");
  }
  return text;
}

std::string make_algorithm(cublasLtHandle_t handle,
                           const AlgorithmTypes& types,
                           const std::string& text,
                           cublasLtMatmulAlgo_t& algorithm) {
  const std::vector<std::string> words = words_of(text);
  for (size_t i = 0; i < std::size(kAttributes); ++i) {
    const Attribute& of = kAttributes[i];
    const std::string name = std::string(of.name) + "=";
    const std::optional<uint32_t> value =
        words.size() == std::size(kAttributes) && words[i].starts_with(name)
            ? parse_as<uint32_t>(std::string_view(words[i]).substr(name.size()))
            : std::nullopt;
    if (!value || (of.bytes == 2 && *value > UINT16_MAX))
      return fmt::format("it should have a number for {}", of.name);
    if (of.attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME &&
        *value != CUBLASLT_REDUCTION_SCHEME_NONE &&
        *value != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
      return fmt::format("reduction {} does not sum floats in a fixed order; 0 and 2 do", *value);
    const cublasStatus_t status =
        of.attribute == CUBLASLT_ALGO_CONFIG_ID
            ? cublasLtMatmulAlgoInit(handle,
                                     types.compute,
                                     types.scale,
                                     types.a,
                                     types.b,
                                     types.out,
                                     types.out,
                                     static_cast<int>(*value),
                                     &algorithm)
            : cublasLtMatmulAlgoConfigSetAttribute(&algorithm, of.attribute, &*value, of.bytes);
    if (status != CUBLAS_STATUS_SUCCESS)
      return fmt::format("{}={}: {}", of.name, *value, cublasLtGetStatusName(status));
  }
  return "";
}

}  // namespace lockstep::cuda
