// In place of runtime/cuda/matmul/matmul.cc where there is no CUDA toolkit: no product is
// supported.
#include "runtime/base/error.h"
#include "runtime/cuda/matmul/matmul.h"

namespace lockstep::cuda {

struct Matmul::Library {};
struct Matmul::Planned {};

Matmul::Matmul(Stream stream, void* workspace) : stream_(stream), workspace_(workspace) {}
Matmul::~Matmul() = default;

const std::string& Matmul::why_not(const Product&) {
  static const std::string kWhyNot = "there is no CUDA toolkit";
  return kWhyNot;
}

void Matmul::run(const Product&, const ProductOperands&) {
  LOCKSTEP_CHECK(false, "there is no CUDA toolkit ");
}

}  // namespace lockstep::cuda
