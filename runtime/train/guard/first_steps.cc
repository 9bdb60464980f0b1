#include "runtime/train/guard/first_steps.h"

#include <fmt/format.h>

#include <cmath>

#include "runtime/base/log.h"
#include "runtime/train/guard/not_finite_text.h"

namespace lockstep::train {

std::string FirstSteps::add(int64_t step, double loss, double grad_norm) {
  if (step == 1) begun_ = true;
  if (!begun_ || reported_ || step > kSteps + skipped_) return "";  // or a resumed run
  if (!std::isfinite(loss) || !std::isfinite(grad_norm)) {
    ++skipped_;
    return "";
  }
  if (first_step_ == 0) {
    first_step_ = step;
    first_loss_ = loss;
    first_norm_ = grad_norm;
  }
  const bool norm = grad_norm >= kLargeNorm ||
                    (grad_norm >= kNorm && grad_norm >= kNormGrowth * first_norm_),
             high_loss = loss >= kLoss && loss >= kLossGrowth * first_loss_ && step > first_step_;
  if (!norm && !high_loss) return "";
  reported_ = true;
  const auto text = [&](const char* what, double now, double first) {
    return step == first_step_
               ? fmt::format("{} is {:.3g}", what, now)
               : fmt::format("{} is {:.3g} ({:.3g} in step {})", what, now, first, first_step_);
  };
  return norm ? text("the gradient's norm", grad_norm, first_norm_)
              : text("the loss", loss, first_loss_);
}

void FirstSteps::watch(const RunContext& context, const metrics::StepRecord& record) {
  const std::string what = add(record.step, record.loss, record.grad_norm);
  if (what.empty() || context.communicator.rank() > 0) return;
  log_warn("step {}: {}{}",
           record.step,
           what,
           words_for_explosion(
               context.config, largest_of_step(context, record.step - 1), *context.data.train));
}

}  // namespace lockstep::train
