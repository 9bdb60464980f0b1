#pragma once
// The GPU models that are known by name: memory and peak rates, for plans and for MFU.

#include <span>
#include <string>
#include <string_view>

#include "runtime/base/dtype.h"

namespace lockstep::cuda {

struct GpuModel {
  // As --gpu takes it. The driver's name has all of its words: "A100-80GB" is the NVIDIA
  // A100-SXM4-80GB, "H100-PCIe" the NVIDIA H100 PCIe.
  const char* name;
  double gib;           // the CUDA driver's total, with error correction on
  int capability;       // 90 for 9.0
  int multiprocessors;  // as CUDA counts them
  // TFLOP/s of dense products, without sparsity, accumulated in fp32, from the vendor's data sheets
  // and whitepapers. `half` is the rate of BF16 and FP16.
  double fp32, tf32, half;
  double gbytes_per_s;  // of its memory
};

// All models.
std::span<const GpuModel> gpu_models();

// The model of a GPU by the driver's name: the one with the most words that the name has in full.
// Null if none is known. Upper and lower case are equal. A variant is no such model: an RTX 4070
// Ti, a laptop's RTX 4090, a MIG slice.
const GpuModel* find_gpu_model(std::string_view driver_name);

// The peak rate of products in floating-point operations a second; the denominator of MFU.
double peak_flops(const GpuModel& model, DType compute, bool tf32);

}  // namespace lockstep::cuda
