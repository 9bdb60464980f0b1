// Catches: a run of equal tokens lost or counted twice where it crosses tiles, rows that no token
// names left unwritten, a position or token row mixed up, sums that depend on the order of threads.

#include "runtime/cuda/ops/embedding.h"

#include <numeric>

#include "tests/fibers/kernel_test.h"
#include "tests/reference/embedding.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

struct Case {
  cuda::EmbeddingSizes sizes;
  int64_t used;  // tokens drawn from the first so many
  bool accumulate;
};

template <typename T>
std::vector<std::byte> check(const Case& at, const std::string& order) {
  const auto [batch, time, channels, vocabulary] = at.sizes;
  const int64_t n = batch * time;
  const std::string where = " n = " + std::to_string(n) + ", C = " + std::to_string(channels) +
                            ", used " + std::to_string(at.used) + ", " + order;
  std::vector<int32_t> ids, places(static_cast<size_t>(n)), sorted;
  for (int64_t i = 0; i < n; ++i)
    ids.push_back(static_cast<int32_t>(bounded_from_word(
        philox_word({.seed = 3}, static_cast<uint64_t>(i)), static_cast<uint32_t>(at.used))));
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](int32_t a, int32_t b) {
    return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)];
  });
  for (int32_t place : places) sorted.push_back(ids[static_cast<size_t>(place)]);

  Guarded<T> token(vocabulary * channels), position((time + 2) * channels), y(n * channels);
  test::fill_stored(token, -1, 1, 1);
  test::fill_stored(position, -1, 1, 2);
  cuda::embedding_forward(at.sizes, ids.data(), token.data(), position.data(), y.data(), nullptr);
  const std::vector<double> forward = test::embedding_forward(
      ids, test::as_doubles(token), test::as_doubles(position), batch, time, channels);
  test::expect_close(test::as_doubles(y), forward, test::kSpacing<T>, "y" + where);  // |y| < 2

  Guarded<T> d_y(n * channels);
  Guarded<float> d_token(vocabulary * channels), d_position((time + 2) * channels);
  test::fill_stored(d_y, -1, 1, 3);
  test::fill_uniform(d_token, -1, 1, 4);
  test::fill_uniform(d_position, -1, 1, 5);
  std::vector<double> token64 = test::to_double(d_token), position64 = test::to_double(d_position);
  if (!at.accumulate) {
    std::fill(token64.begin(), token64.end(), 0);
    std::fill(position64.begin(), position64.begin() + time * channels, 0);
  }
  test::embedding_backward(ids, test::as_doubles(d_y), batch, time, channels, token64, position64);
  Guarded<float> workspace(
      static_cast<int64_t>(cuda::embedding_backward_workspace_bytes(at.sizes) / sizeof(float)));
  cuda::embedding_backward<T>({.sizes = at.sizes,
                               .sorted_ids = sorted.data(),
                               .places = places.data(),
                               .d_y = d_y.data(),
                               .d_token = d_token.data(),
                               .accumulate_token = at.accumulate,
                               .d_position = d_position.data(),
                               .accumulate_position = at.accumulate,
                               .workspace = workspace.data()},
                              nullptr);
  const double eps = kEps * static_cast<double>(n + 2);
  test::expect_close(d_token, token64, eps * static_cast<double>(n), "d_token" + where);
  test::expect_close(
      d_position, position64, eps * static_cast<double>(batch), "d_position" + where);
  return test::bytes_of(y, d_token, d_position);
}

template <typename T>
class CudaEmbeddingTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaEmbeddingTest, test::StoredTypes);

TYPED_TEST(CudaEmbeddingTest, MatchesDoublePrecisionInAnyOrder) {
  for (const Case& at : {Case{{1, 1, 1, 1}, 1, false},
                         Case{{2, 64, 8, 50}, 40, false},
                         Case{{2, 64, 8, 50}, 1, true},        // one run over all tiles
                         Case{{3, 50, 24, 9}, 3, false},       // runs over several tiles
                         Case{{1, 32, 3, 2}, 2, true},         // exactly one tile
                         Case{{2, 40, 1040, 7}, 5, false}}) {  // several blocks of columns
    test::for_each_order([&](const std::string& order) { return check<TypeParam>(at, order); });
  }
}

}  // namespace
}  // namespace lockstep
