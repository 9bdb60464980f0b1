// Catches: iterations that are not Muon's, on matrices with more rows than columns and fewer; sums
// of squares that are lost, or whose bits depend on the order of the threads; a workspace that is
// too small.

#include "runtime/cuda/matmul/newton_schulz.h"

#include "runtime/cuda/matmul/plain_product.h"
#include "tests/fibers/kernel_test.h"
#include "tests/reference/newton_schulz.h"

namespace lockstep::cuda {
namespace {

TEST(CudaNewtonSchulz, FollowsTheFormula) {
  for (const auto& [rows, columns] : {std::pair(2, 2), {3, 50}, {50, 3}, {17, 17}, {30, 12}}) {
    for (const int iterations : {1, 4}) {
      const NewtonSchulz shape = {rows, columns, iterations, 0.75f};
      std::vector<float> from(static_cast<size_t>(shape.elements()));
      test::fill_uniform(from, -1, 1, static_cast<uint64_t>(rows));
      test::for_each_order([&](const char*) {
        test::Guarded<float> matrix(shape.elements());
        matrix.assign(from);
        test::Guarded<std::byte> workspace(
            static_cast<int64_t>(newton_schulz_bytes(rows, columns)));
        newton_schulz(matrix.data(),
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
  newton_schulz(matrix.data(),
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
