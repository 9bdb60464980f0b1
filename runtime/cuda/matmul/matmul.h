#pragma once
// Matrix products through cuBLASLt, row-major, accumulated in float.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "runtime/base/dtype.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// What is done to the product before it is stored.
enum class Epilogue : uint8_t {
  kNone,
  kBias,
  kBiasRelu,
  kBiasGelu,
  kBiasGeluSaved,
  kGeluGradient,  // times the derivative of GELU at the saved pre-activation
  kBiasGradient,  // none, but the sums of a over k are stored as well
};

// out (m, n) = or += op(a) (m, k) * op(b) (k, n), then the epilogue; op transposes where asked to.
// Without transposition a is stored as (m, k), with it as (k, m); b likewise. Or `batch` of them,
// without an epilogue.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  // Elements from row to row of each, as stored; 0: no more than a row has.
  int64_t stride_a = 0, stride_b = 0, stride_out = 0;
  int64_t batch = 1;
  int64_t batch_a = 0, batch_b = 0, batch_out = 0;  // elements from one product to the next
  bool transpose_a = false, transpose_b = false;
  DType in = DType::kF32;   // of a, b, bias and the saved pre-activation
  DType out = DType::kF32;  // in, or kF32
  bool accumulate = false;  // out += instead of =
  bool tf32 = false;        // float inputs rounded to 10 bits of mantissa for the tensor cores
  Epilogue epilogue = Epilogue::kNone;

  auto operator<=>(const Product&) const = default;
};

struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;
  float scale = 1;             // multiplies the product
  const void* bias = nullptr;  // (n) with an epilogue of that name
  void* saved = nullptr;       // (m, n) before the activation; written with kBiasGeluSaved, read
                               // with kGeluGradient
  float* bias_gradient = nullptr;  // (m), with kBiasGradient, whose product is stored as float too
};

// Runs products on one stream. The algorithm of each Product is chosen once, by cuBLASLt's
// heuristic and not by timing, and kept: with the same library and GPU every run takes the same,
// and gives the same bits. Algorithms that sum with atomics are not considered. Errors throw Error
// (kInternal).
class Matmul {
 public:
  // `workspace`: device memory of kWorkspaceBytes, borrowed.
  Matmul(Stream stream, void* workspace);
  ~Matmul();

  // Whether cuBLASLt has an algorithm for it. Not while the stream is being captured, if it has not
  // been asked before.
  bool supports(const Product& product) { return why_not(product).empty(); }
  // Why it has none; empty where it has one.
  const std::string& why_not(const Product& product);
  // Queues one product, which must be supported. All operands begin on multiples of 16 bytes.
  void run(const Product& product, const ProductOperands& operands);

  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

 private:
  struct Planned;
  Planned& plan(const Product& product);

  struct Library;
  std::unique_ptr<Library> library_;
  Stream stream_;
  void* workspace_;
  std::map<Product, std::unique_ptr<Planned>> planned_;
};

}  // namespace lockstep::cuda
