#include "runtime/generate/image_sampler.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/normal.h"
#include "runtime/base/rng.h"
#include "runtime/generate/image_denoiser.h"
#include "runtime/graph/diffusion_schedule.h"
#include "runtime/graph/ops/diffusion_noise.h"

namespace lockstep::generate {
namespace {

// The number of the random stream within kRngNoise. Graphs use the lower numbers.
constexpr uint32_t kSamplingStream = 4;

// A step from one time to an earlier one.
struct Step {
  float time = 0;                     // the network's input
  graph::DiffusionShares here, next;  // shares of image and noise
};

std::vector<Step> steps_on_schedule(DiffusionSchedule schedule, int64_t count) {
  const std::vector<graph::DiffusionShares> shares = graph::diffusion_shares(schedule);
  const std::vector<int64_t> times = sampling_times(count);
  std::vector<Step> steps;
  for (size_t i = 0; i < times.size(); ++i) {
    const graph::DiffusionShares next = i + 1 < times.size()
                                            ? shares[static_cast<size_t>(times[i + 1])]
                                            : graph::DiffusionShares{1, 0};
    steps.push_back({static_cast<float>(times[i]), shares[static_cast<size_t>(times[i])], next});
  }
  return steps;
}

std::vector<Step> steps_on_lines(int64_t count) {
  std::vector<Step> steps;
  const auto at = [count](int64_t i) {
    const double t = 1 - static_cast<double>(i) / static_cast<double>(count);
    return graph::DiffusionShares{1 - t, t};
  };
  for (int64_t i = 0; i < count; ++i)
    steps.push_back({static_cast<float>(at(i).noise * graph::kDiffusionTimes), at(i), at(i + 1)});
  return steps;
}

// The value of an element of a noised image after the step. `output` is the network's output for
// the element.
double after(const config::DiffusionTraits& model, const Step& step, double x, double output) {
  if (model.schedule == DiffusionSchedule::kFlowMatching)
    return x + (step.next.noise - step.here.noise) * output;
  const double a = step.here.image, b = step.here.noise;
  double image = output;
  if (model.target == DiffusionTarget::kEpsilon) image = (x - b * output) / a;
  if (model.target == DiffusionTarget::kVelocity) image = a * x - b * output;
  image = std::clamp(image, -1.0, 1.0);
  const double noise = (x - a * image) / b;
  return step.next.image * image + step.next.noise * noise;
}

// Images that go through the steps together.
class Group {
 public:
  Group(ImageDenoiser& denoiser, const config::ModelTraits& model, const ImageSampling& options)
      : denoiser_(denoiser),
        model_(model),
        options_(options),
        capacity_(denoiser.images() / options.rows_per_image()) {
    LOCKSTEP_CHECK(capacity_ > 0 && model.diffusion);
  }
  int64_t capacity() const { return capacity_; }

  // Starts from the noise of images `first`, `first` + 1, ...
  void begin(int64_t first, std::span<const int32_t> classes) {
    classes_ = classes;
    const auto elements = static_cast<uint64_t>(denoiser_.elements());
    const RngStream stream{options_.seed, 0, 0, kRngNoise | kSamplingStream};
    images_.resize(classes.size() * elements);
    for (uint64_t i = 0; i < images_.size(); ++i)
      images_[i] =
          normal_from_word(philox_word(stream, static_cast<uint64_t>(first) * elements + i));
  }

  void take(const Step& step) {
    const auto elements = static_cast<size_t>(denoiser_.elements());
    const int64_t rows = options_.rows_per_image();
    const std::span<float> noised = denoiser_.noised();
    std::ranges::fill(noised, 0.0f);
    for (size_t i = 0; i < classes_.size(); ++i) {
      for (int64_t k = 0; k < rows; ++k) {
        const auto row = static_cast<int64_t>(i) * rows + k;
        const bool no_class = k == 1 || !options_.uses_class();
        std::copy_n(&images_[i * elements], elements, &noised[static_cast<size_t>(row) * elements]);
        denoiser_.set_condition(
            row, step.time, no_class ? static_cast<int32_t>(model_.outputs) : classes_[i]);
      }
    }
    const std::span<const float> outputs = denoiser_.run();
    for (size_t i = 0; i < images_.size(); ++i) {
      const size_t image = i / elements, element = i % elements;
      const size_t at = image * static_cast<size_t>(rows) * elements + element;
      double here = static_cast<double>(outputs[at]);
      if (rows == 2) {
        const auto without_class = static_cast<double>(outputs[at + elements]);
        here = without_class + options_.guidance * (here - without_class);
      }
      images_[i] =
          static_cast<float>(after(*model_.diffusion, step, static_cast<double>(images_[i]), here));
    }
  }

  const std::vector<float>& images() const { return images_; }

 private:
  ImageDenoiser& denoiser_;
  const config::ModelTraits& model_;
  const ImageSampling& options_;
  int64_t capacity_;
  std::span<const int32_t> classes_;
  std::vector<float> images_;  // (classes, H, W, C)
};

}  // namespace

std::vector<int64_t> sampling_times(int64_t steps) {
  LOCKSTEP_CHECK(steps > 0 && steps <= graph::kDiffusionTimes);
  std::vector<int64_t> times;
  for (int64_t left = steps; left > 0; --left)
    times.push_back((2 * graph::kDiffusionTimes * left + steps) / (2 * steps) -
                    1);  // rounded to nearest
  return times;
}

std::vector<float> sample_images(ImageDenoiser& denoiser,
                                 const config::ModelTraits& model,
                                 std::span<const int32_t> classes,
                                 const ImageSampling& options,
                                 const std::function<void(int64_t done, int64_t all)>& progress) {
  Group group(denoiser, model, options);
  const auto count = static_cast<int64_t>(classes.size());
  const std::vector<Step> steps = model.diffusion->schedule == DiffusionSchedule::kFlowMatching
                                      ? steps_on_lines(options.steps)
                                      : steps_on_schedule(model.diffusion->schedule, options.steps);
  const int64_t groups = (count + group.capacity() - 1) / group.capacity();
  const int64_t all = groups * options.steps;
  std::vector<float> images;
  int64_t done = 0;
  for (int64_t first = 0; first < count; first += group.capacity()) {
    const int64_t size = std::min(group.capacity(), count - first);
    group.begin(first, classes.subspan(static_cast<size_t>(first), static_cast<size_t>(size)));
    for (const Step& step : steps) {
      group.take(step);
      progress(++done, all);
    }
    images.insert(images.end(), group.images().begin(), group.images().end());
  }
  return images;
}

}  // namespace lockstep::generate
