#pragma once
// Matrix products through cuBLASLt, row-major, accumulated in float.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// What is applied to the product before it is stored.
enum class Epilogue : uint8_t {
  kNone,
  kBias,
  kBiasRelu,
  kBiasGelu,
  kBiasGeluSaved,
  kGeluGradient,  // multiplies by the derivative of GELU at the saved pre-activation
  kBiasGradient,  // leaves the product as it is, and also stores the sums of a over k
};

// out (m, n) = or += op(a) (m, k) * op(b) (k, n), then the epilogue; op transposes if requested.
// Without transposition, a is stored as (m, k), otherwise as (k, m); b likewise. Or `batch` such
// products, without an epilogue.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  // Elements between rows of each matrix, as stored; 0: rows are contiguous.
  int64_t stride_a = 0, stride_b = 0, stride_out = 0;
  int64_t batch = 1;
  int64_t batch_a = 0, batch_b = 0, batch_out = 0;  // elements between consecutive products
  bool transpose_a = false, transpose_b = false;
  DType in = DType::kF32;   // of a, b, bias and the saved pre-activation
  DType out = DType::kF32;  // the type of `in`, or kF32
  bool accumulate = false;  // out += instead of =
  bool tf32 = false;        // float inputs rounded to 10 bits of mantissa for the tensor cores
  Epilogue epilogue = Epilogue::kNone;
  // Products of several lanes: their rows of a and out one after the other, or a batch. A pass has
  // up to `pass` lanes; all their products have the algorithm of a whole pass, and so the same
  // bits, however many lanes are computed at once.
  enum class Lanes : uint8_t { kRows, kBatch };
  int64_t lanes = 1, pass = 1;
  Lanes lanes_are = Lanes::kRows;

  auto operator<=>(const Product&) const = default;
};

struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;
  float scale = 1;             // multiplies the product
  const void* bias = nullptr;  // (n), for epilogues with a bias
  void* saved = nullptr;       // (m, n) before the activation; written by kBiasGeluSaved, read by
                               // kGeluGradient
  float* bias_gradient = nullptr;  // (m), for kBiasGradient, whose product is stored as float too
};

// Runs products on one stream. The algorithm of each Product is chosen once and kept: by default
// the first of cuBLASLt's heuristic, which is not timed. So with the same library and GPU, every
// run uses the same algorithm and gets the same bits. Algorithms that sum with atomics are
// excluded. Throws Error (kInternal) on failure.
class Matmul {
 public:
  // Chooses the algorithm of a product when it is first asked for, by use(). Returns why the
  // product is not to run, or an empty string.
  using Choose = std::function<std::string(Matmul& matmul, const Product& product)>;

  // `workspace`: device memory of kWorkspaceBytes, borrowed. `choose`: null for the default.
  Matmul(Stream stream, void* workspace, Choose choose = nullptr);
  ~Matmul();

  // Whether cuBLASLt has an algorithm for the product. The first call for a product must not be
  // made while the stream is being captured.
  bool supports(const Product& product) { return why_not(product).empty(); }
  // Why cuBLASLt has no algorithm for the product; empty if it has one.
  const std::string& why_not(const Product& product);
  // Queues one product, which must be supported. All operands are aligned to 16 bytes.
  void run(const Product& product, const ProductOperands& operands);

  // The algorithms that cuBLASLt's heuristic offers for the product, as text (algorithm_text.h),
  // the fastest by its estimate first; none if the product is not supported, and then `why_not` has
  // the reason. Not during a capture.
  std::vector<std::string> offers(const Product& product, std::string& why_not);
  // Runs the product by this algorithm, or kFirstAlgorithm, from here on. Returns why cuBLASLt
  // refuses it for the product, or an empty string. Not during a capture.
  std::string use(const Product& product, const std::string& algorithm);

  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

 private:
  struct Planned;
  Planned& plan(const Product& product);
  std::string choose(const Product& product, Planned& planned);
  std::string choose_of_pass(const Product& product, Planned& planned);
  Planned& described(const Product& product);

  struct Library;
  std::unique_ptr<Library> library_;
  Stream stream_;
  void* workspace_;
  Choose choose_;
  std::map<Product, std::unique_ptr<Planned>> planned_;
};

}  // namespace lockstep::cuda
