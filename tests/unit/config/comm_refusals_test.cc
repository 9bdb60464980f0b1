// What ranks say to each other, and do not allow. Catches: see refusals_test.cc.

#include "tests/unit/config/bad_case.h"

namespace lockstep {
namespace {

class CommRefusal : public testing::TestWithParam<BadCase> {};

TEST_P(CommRefusal, NamesFieldValueAndAllowed) { expect_refused(GetParam()); }

const BadCase kCases[] = {
    {"bucket_negative", kMlpText, {"comm.bucket_mib=-1"}, "comm.bucket_mib", "-1", "[0, 1024]"},
    {"bucket_large", kMlpText, {"comm.bucket_mib=1025"}, "comm.bucket_mib", "1025", "[0, 1024]"},
    {"wire",
     kMlpText,
     {"comm.wire_dtype=bf16", "comm.order=FAST"},
     "comm.wire_dtype",
     "BF16",
     "FP32"},
    {"feedback_of_nothing",
     kMlpText,
     {"comm.error_feedback=true"},
     "comm.error_feedback",
     "true",
     "wire_dtype BF16"},
    {"feedback_of_shared_gradients",
     kMlpText,
     {"comm.error_feedback=true", "comm.wire_dtype=BF16", "comm.zero_stage=2"},
     "comm.error_feedback",
     "true",
     "false with comm.zero_stage 2"},
    {"feedback_of_scaled_gradients",
     kMlpText,
     {"comm.error_feedback=true", "comm.wire_dtype=BF16", "execution.precision=FP16"},
     "comm.error_feedback",
     "true",
     "execution.precision FP16"},
    {"factors_of_shared_optimizer",
     kMlpText,
     {"comm.power_sgd_rank=4"},
     "comm.power_sgd_rank",
     "4",
     "0 with comm.zero_stage 1"},
    {"factors_in_any_order",
     kMlpText,
     {"comm.power_sgd_rank=4", "comm.zero_stage=0", "comm.order=FAST"},
     "comm.power_sgd_rank",
     "4",
     "0 with comm.order FAST"},
    {"factors_rounded",
     kMlpText,
     {"comm.power_sgd_rank=4", "comm.zero_stage=0", "comm.wire_dtype=BF16"},
     "comm.power_sgd_rank",
     "4",
     "0 with a comm.wire_dtype other than FP32"},
    {"factors_of_scaled_gradients",
     kMlpText,
     {"comm.power_sgd_rank=4", "comm.zero_stage=0", "execution.precision=FP16"},
     "comm.power_sgd_rank",
     "4",
     "0 with execution.precision FP16"},
    {"factors_too_wide",
     kMlpText,
     {"comm.power_sgd_rank=33"},
     "comm.power_sgd_rank",
     "33",
     "0..32"},
    {"residual_groups_of_nothing",
     kMlpText,
     {"comm.residual_groups=4"},
     "comm.residual_groups",
     "4",
     "comm.error_feedback"},
    {"residual_groups_odd",
     kMlpText,
     {"comm.error_feedback=true", "comm.wire_dtype=BF16", "comm.residual_groups=3"},
     "comm.residual_groups",
     "3",
     "a power of two up to train.lanes, which is 8"},
    {"residual_groups_many",
     kMlpText,
     {"comm.error_feedback=true", "comm.wire_dtype=BF16", "comm.residual_groups=16"},
     "comm.residual_groups",
     "16",
     "a power of two up to train.lanes, which is 8"},
};

INSTANTIATE_TEST_SUITE_P(Comm, CommRefusal, testing::ValuesIn(kCases), label_of);

}  // namespace
}  // namespace lockstep
