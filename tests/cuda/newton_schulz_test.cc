// Catches: iterations that are not Muon's, on matrices with more rows than columns and fewer; sums
// of squares that are lost, or whose bits depend on the order of the threads; a workspace that is
// too small; products of BFloat16 that do not follow those of floats.

#include "runtime/cuda/matmul/newton_schulz.h"

#include "runtime/cuda/matmul/plain_product.h"
#include "tests/fibers/kernel_test.h"
#include "tests/reference/newton_schulz.h"

namespace lockstep::cuda {
namespace {

TEST(CudaNewtonSchulz, FollowsTheFormula) {
  for (const auto& [rows, columns] : {std::pair(2, 2), {3, 50}, {50, 3}, {17, 17}, {30, 12}}) {
    for (const int iterations : {1, 4}) {
      const exec::NewtonSchulz shape = {rows, columns, iterations, 0.75f};
      std::vector<float> from(static_cast<size_t>(shape.elements()));
      test::fill_uniform(from, -1, 1, static_cast<uint64_t>(rows));
      test::for_each_order([&](const char*) {
        test::Guarded<float> matrix(shape.elements());
        matrix.assign(from);
        test::Guarded<std::byte> workspace(
            static_cast<int64_t>(newton_schulz_bytes(rows, columns)));
        newton_schulz<float>(matrix.data(),
                             shape,
                             false,
                             workspace.data(),
                             nullptr,
                             [](const Product& product, const ProductOperands& operands) {
                               plain_product(product, operands, nullptr);
                             });
        test::expect_close(matrix,
                           test::newton_schulz_reference(test::to_double(from), shape),
                           test::newton_schulz_tolerance(shape),
                           std::to_string(rows) + " x " + std::to_string(columns));
        return test::bytes_of(matrix);
      });
    }
  }
}

// The largest relative error in the Frobenius norm of products of BFloat16 against FP32's. Each
// rounds its inputs by at most 2^-9; the iterations widen that, along the smallest singular values,
// by at most 3.4445 each.
constexpr double kHalfTolerance = 0.1;

TEST(CudaNewtonSchulz, HalvesFollowFloats) {
  const auto multiply = [](const Product& product, const ProductOperands& operands) {
    EXPECT_EQ(product.in, DType::kBF16);
    plain_product(product, operands, nullptr);
  };
  for (const auto& [rows, columns] :
       {std::pair(1, 7), {3, 50}, {50, 3}, {17, 17}, {30, 12}, {64, 96}, {96, 96}}) {
    for (const int iterations : {1, 4, 5}) {
      const exec::NewtonSchulz shape = {rows, columns, iterations, 0.75f};
      std::vector<float> from(static_cast<size_t>(shape.elements()));
      test::fill_uniform(from, -1, 1, static_cast<uint64_t>(rows));
      test::for_each_order([&](const char*) {
        test::Guarded<float> matrix(shape.elements());
        matrix.assign(from);
        test::Guarded<std::byte> workspace(
            static_cast<int64_t>(newton_schulz_bytes(rows, columns)));
        newton_schulz<BFloat16>(matrix.data(), shape, false, workspace.data(), nullptr, multiply);
        const std::vector<double> exact =
            test::newton_schulz_reference(test::to_double(from), shape);
        double off = 0, whole = 0;
        for (size_t i = 0; i < exact.size(); ++i) {
          off += std::pow(matrix.data()[i] - exact[i], 2);
          whole += std::pow(exact[i], 2);
        }
        EXPECT_LT(std::sqrt(off / whole), kHalfTolerance)
            << rows << " x " << columns << ", " << iterations << " iterations";
        if (rows > 1) {
          EXPECT_GT(std::sqrt(off / whole), 0x1p-14) << "products of floats";
        }
        return test::bytes_of(matrix);
      });
    }
  }
}

// More stretches than parts, and a last one that is not whole.
TEST(CudaNewtonSchulz, DividesByTheNorm) {
  const int64_t n = int64_t{kNormParts} * 256 * 2 + 77;
  std::vector<float> from(static_cast<size_t>(n)), to(from.size());
  test::fill_uniform(from, -1, 1, 5);
  double squares = 0;
  for (const float value : from) squares += static_cast<double>(value) * value;
  std::vector<double> parts(kNormParts);
  divide_by_norm(from.data(), n, 1e-7, parts.data(), to.data(), nullptr);
  // The factor and the product round once each.
  test::expect_close(
      to,
      from,
      [&](int64_t i) { return std::abs(from[static_cast<size_t>(i)]); },
      "of the size of the source");
  for (size_t i = 0; i < to.size(); ++i)
    ASSERT_NEAR(to[i], from[i] / std::sqrt(squares), 2 * test::kEps * std::abs(to[i])) << i;
}

TEST(CudaNewtonSchulz, ZerosStayZeros) {
  std::vector<float> zeros(24), matrix(24);
  std::vector<std::byte> workspace(newton_schulz_bytes(4, 6));
  newton_schulz<float>(matrix.data(),
                       {4, 6, 5, 1},
                       false,
                       workspace.data(),
                       nullptr,
                       [](const Product& product, const ProductOperands& operands) {
                         plain_product(product, operands, nullptr);
                       });
  EXPECT_EQ(matrix, zeros);
}

}  // namespace
}  // namespace lockstep::cuda
