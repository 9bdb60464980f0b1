// Catches: squares that are added to other rows or columns, or lost where a piece of a matrix
// begins or ends; directions that are not the CPU's.
#include "runtime/cuda/flat/adafactor.h"

#include "tests/fibers/kernel_test.h"
#include "tests/reference/factored.h"

namespace lockstep::test {
namespace {

TEST(CudaAdafactor, HasTheBitsOfPlainLoops) {
  for (const FactoredShape& shape : kFactoredShapes) {
    const exec::FactoredStep step = factored_step(shape);
    for_each_piece(shape, [&](int64_t first, int64_t elements) {
      FactoredArrays plain(shape);
      factored_reference(plain.piece(first, elements), step);
      for_each_order([&](const std::string& order) {
        FactoredArrays gpu(shape);
        cuda::add_factored_squares(gpu.piece(first, elements), &step, nullptr);
        cuda::factored_directions(gpu.piece(first, elements), &step, nullptr);
        const std::vector<std::byte> bytes = bytes_of(gpu.gradients, gpu.high, gpu.low);
        EXPECT_EQ(bytes, bytes_of(plain.gradients, plain.high, plain.low))
            << shape.elements() << " elements, from " << first << ", " << order;
        return bytes;
      });
    });
  }
}

}  // namespace
}  // namespace lockstep::test
