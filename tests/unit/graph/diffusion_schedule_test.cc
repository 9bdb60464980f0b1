// Catches: shares of image and noise of another schedule, or that do not belong together.
#include "runtime/graph/diffusion_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/graph/ops/diffusion_noise.h"

namespace lockstep::graph {
namespace {

TEST(DiffusionSchedule, SharesAreOfOneCircleAndTheImageFades) {
  for (const auto schedule : {DiffusionSchedule::kLinear, DiffusionSchedule::kCosine}) {
    const std::vector<DiffusionShares> shares = diffusion_shares(schedule);
    ASSERT_EQ(static_cast<int64_t>(shares.size()), kDiffusionTimes);
    double before = 1;
    for (const DiffusionShares& share : shares) {
      EXPECT_NEAR(share.image * share.image + share.noise * share.noise, 1, 1e-12);
      EXPECT_LT(share.image, before);
      EXPECT_GT(share.image, 0);
      before = share.image;
    }
  }
}

// The product of 1 - beta over DDPM's 1000 steps is 4.0358e-5; the squared cosine passes a half
// where (t + 0.008) / 1.008 is a half, up to what it begins with.
TEST(DiffusionSchedule, HasThePublishedValues) {
  const auto linear = diffusion_shares(DiffusionSchedule::kLinear);
  EXPECT_NEAR(linear.front().image * linear.front().image, 1 - 1e-4, 1e-12);
  EXPECT_NEAR(linear.back().image * linear.back().image, 4.0358e-5, 1e-9);
  const auto cosine = diffusion_shares(DiffusionSchedule::kCosine);
  EXPECT_NEAR(cosine[495].image * cosine[495].image, 0.5, 1e-3);
  EXPECT_NEAR(cosine[999].image / cosine[998].image, std::sqrt(0.001), 1e-6);  // all but 0.001
}

}  // namespace
}  // namespace lockstep::graph
