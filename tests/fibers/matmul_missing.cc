// In place of runtime/cuda/matmul/matmul.cc where there is no CUDA toolkit: no product is
// supported.
#include "runtime/base/error.h"
#include "runtime/cuda/matmul/matmul.h"

namespace lockstep::cuda {

struct Matmul::Library {};
struct Matmul::Planned {};

Matmul::Matmul(Stream stream, void* workspace, Choose) : stream_(stream), workspace_(workspace) {}
Matmul::~Matmul() = default;

const std::string& Matmul::why_not(const Product&) {
  static const std::string kWhyNot = "there is no CUDA toolkit";
  return kWhyNot;
}

std::vector<std::string> Matmul::offers(const Product&, std::string& why_not) {
  why_not = "there is no CUDA toolkit";
  return {};
}
std::string Matmul::use(const Product&, const std::string&) { return "there is no CUDA toolkit"; }

void Matmul::run(const Product&, const ProductOperands&) {
  LOCKSTEP_CHECK(false, "there is no CUDA toolkit ");
}

}  // namespace lockstep::cuda
