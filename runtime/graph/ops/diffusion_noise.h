#pragma once
// diffusion_noise: makes the training data of a denoising network. For each sample it draws a time,
// and noise e from N(0, 1). With x = pixel / 127.5 - 1, and the weights of image and noise at that
// time, a and b:
//   y      = a x + b e
//   target = e (kEpsilon) | x (kSample) | a e - b x (kVelocity)
// Without a table of weights, the path from image to noise is a straight line (rectified flow): the
// time t is uniform in [0, 1), a = 1 - t, b = t, and the velocity is e - x. In training only, a
// share of the samples loses its class, for classifier-free guidance.
// Row 0 of the table `shares` is a, row 1 is b, at times 0 to K - 1. `times` are indices of these,
// or 1000 t. `classes` are the labels, or the attribute `classes` if they are lost.
// In training, the random numbers depend on the seed, the step and the index of the sample in the
// global batch. In evaluation, they depend on the seed and the index of the sample in the set, so
// that all evaluations of a run draw the same. The op has no gradient.

#include <cmath>
#include <cstdint>
#include <string>

#include "runtime/base/half.h"
#include "runtime/base/host_device.h"
#include "runtime/base/normal.h"
#include "runtime/base/rng.h"
#include "runtime/config/run_config.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class DiffusionNoiseIn : InputIndex { kX, kLabels, kShares };
enum class DiffusionNoiseOut : OutputIndex { kY, kTarget, kTimes, kClasses };

struct DiffusionNoiseAttributes {
  DiffusionTarget target = DiffusionTarget::kEpsilon;
  float label_dropout = 0;  // share of the samples that lose their class
  int32_t classes = 0;      // the class of a sample that has lost its own
  uint32_t purpose = 0;     // of the random streams; ops::diffusion_noise sets it
};

// Times are passed to networks as numbers in [0, kDiffusionTimes).
inline constexpr int64_t kDiffusionTimes = 1000;

namespace ops {

struct NoisedImages {
  TensorId images, target, times, classes;  // the outputs
};

// shares may be kNoTensor. label_dropout is applied only in training.
NoisedImages diffusion_noise(GraphBuilder& builder,
                             const std::string& name,
                             TensorId x,
                             TensorId labels,
                             TensorId shares,
                             const DiffusionNoiseAttributes& attributes);

}  // namespace ops

template <typename T>
struct DiffusionNoise {
  const OpCall& call = OpCall::none();
  struct Time {
    Wide<T> image, noise;  // their weights
    Wide<T> number;        // as passed to networks
  };

  DiffusionNoiseAttributes attributes = call.attributes<DiffusionNoiseAttributes>();
  // of an image
  int64_t samples = call.input_shape(DiffusionNoiseIn::kX)[0];
  int64_t elements = call.input_shape(DiffusionNoiseIn::kX).elements() / samples;
  // K
  int64_t time_count = call.has_input(DiffusionNoiseIn::kShares)
                           ? call.input_shape(DiffusionNoiseIn::kShares)[1]
                           : 0;
  const uint8_t* x = call.input<uint8_t>(DiffusionNoiseIn::kX);            // (samples, elements)
  const int32_t* labels = call.input<int32_t>(DiffusionNoiseIn::kLabels);  // (samples)
  const Wide<T>* shares = call.input<Wide<T>>(DiffusionNoiseIn::kShares);  // (2, K) or null
  T* y = call.output<T>(DiffusionNoiseOut::kY);                            // (samples, elements)
  Wide<T>* target = call.output<Wide<T>>(DiffusionNoiseOut::kTarget);      // (samples, elements)
  Wide<T>* times = call.output<Wide<T>>(DiffusionNoiseOut::kTimes);        // (samples)
  int32_t* classes = call.output<int32_t>(DiffusionNoiseOut::kClasses);    // (samples)

  // Word 0 of a sample is for its time, word 1 decides whether it loses its class.
  LOCKSTEP_HD uint32_t word_of(const LaneContext& lane, int64_t sample, int number) const {
    return philox_word({lane.seed, lane.step, 0, attributes.purpose | 1},
                       static_cast<uint64_t>(2 * (lane.first_sample + sample) + number));
  }
  LOCKSTEP_HD uint32_t noise_word(const LaneContext& lane, int64_t sample, int64_t element) const {
    return philox_word({lane.seed, lane.step, 0, attributes.purpose},
                       static_cast<uint64_t>((lane.first_sample + sample) * elements + element));
  }

  LOCKSTEP_HD Time time_of(const LaneContext& lane, int64_t sample) const {
    const uint32_t word = word_of(lane, sample, 0);
    if (time_count == 0) {
      const Wide<T> t = uniform_from_word(word);
      return {1 - t, t, static_cast<Wide<T>>(kDiffusionTimes) * t};
    }
    const uint32_t time = bounded_from_word(word, static_cast<uint32_t>(time_count));
    return {shares[time], shares[time_count + time], static_cast<Wide<T>>(time)};
  }

  // Writes the time and the class of a sample.
  LOCKSTEP_HD void tell(const LaneContext& lane, int64_t sample) const {
    times[sample] = time_of(lane, sample).number;
    const bool lost = uniform_from_word(word_of(lane, sample, 1)) < attributes.label_dropout;
    classes[sample] = lost ? attributes.classes : labels[sample];
  }

  // Writes an element of a sample's image and target.
  LOCKSTEP_HD void mix(const LaneContext& lane,
                       const Time& time,
                       int64_t sample,
                       int64_t element) const {
    const int64_t i = sample * elements + element;
    const float image = std::fma(static_cast<float>(x[i]), 1 / 127.5f, -1.0f);
    const float noise = normal_from_word(noise_word(lane, sample, element));
    y[i] = round_to<T>(std::fma(time.image, image, time.noise * noise));
    const bool straight = time_count == 0;
    switch (attributes.target) {
      case DiffusionTarget::kEpsilon: target[i] = noise; break;
      case DiffusionTarget::kSample: target[i] = image; break;
      case DiffusionTarget::kVelocity:
        target[i] = straight ? noise - image : std::fma(time.image, noise, -(time.noise * image));
        break;
    }
  }
};

}  // namespace lockstep::graph
