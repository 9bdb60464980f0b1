#include "runtime/run/sample_use.h"

#include <bit>
#include <cmath>

#include "runtime/base/text.h"

namespace lockstep::run {
namespace {

// Factor by which a run may exceed train.epochs unnoticed. Rounding up to whole steps takes less,
// except with very few steps.
constexpr double kTolerated = 1.5;
constexpr double kRounded = 0.01;  // a difference that is not worth a word

// Batches that do not take a sample twice.
std::string remedy(const TrainConfig& train, int64_t samples) {
  const int64_t batch = samples / train.lanes * train.lanes;
  if (batch > 0) return fmt::format("set train.global_batch to at most {}", batch);
  return fmt::format("set train.lanes and train.global_batch to at most {}",
                     std::bit_floor(static_cast<uint64_t>(samples)));
}

}  // namespace

// A step takes the next global_batch positions of the epochs, one after the other. So a batch that
// is larger than the data set has whole epochs, and a part of one.
std::string sample_use_warning(const TrainConfig& train,
                               double epochs,
                               int64_t samples,
                               bool drawn) {
  const int64_t batch = train.global_batch;
  const double run_epochs =
      static_cast<double>(train.steps) * static_cast<double>(batch) / static_cast<double>(samples);
  const bool too_long = epochs > 0 && run_epochs > kTolerated * epochs;
  const bool as_asked = epochs == 0 || std::abs(run_epochs / epochs - 1) < kRounded;
  if (samples < batch) {
    const int64_t least = batch / samples, most = (batch + samples - 1) / samples;
    return fmt::format(
        "{} {} fewer than train.global_batch ({}): every step takes each of them {} times, and "
        "the run of {} is {:.3g} epochs{}; {}",
        counted(samples, "training sample"),
        samples == 1 ? "is" : "are",
        batch,
        drawn           ? fmt::format("about {:.3g}", static_cast<double>(batch) / samples)
        : least == most ? std::to_string(least)
                        : fmt::format("{} to {}", least, most),
        counted(train.steps, "step"),
        run_epochs,
        as_asked ? "" : fmt::format(", not {:g} (train.epochs)", epochs),
        remedy(train, samples));
  }
  if (!too_long) return "";
  return fmt::format(
      "the run is {:.3g} epochs of {}, not {:g} (train.epochs), because it has {} of {} samples "
      "(train.global_batch) and no smaller one; set a smaller train.global_batch",
      run_epochs,
      counted(samples, "training sample"),
      epochs,
      counted(train.steps, "step"),
      batch);
}

}  // namespace lockstep::run
