// Synthetic data for benchmarks. Reading costs nothing, yet the data can be learnt, so that a
// falling loss still shows that a run works. Samples are a pure function of (seed, index) and the
// same on every machine, as no math library is used:
// - Features with softmax: label () i32 is uniform; x (F) f32 is the label's random sign vector
//   plus noise, scaled to about unit variance.
// - Features with other losses: x is about N(0, 1); target (O) f32 is a fixed random linear map of
//   x; for binary cross-entropy 1 if that is positive and otherwise 0; for distributions the shares
//   of its squares.
// - Tokens: the next token is usually a fixed function of the last (times a, plus b, modulo the
//   vocabulary); one in eight is random.
// - Images: see images/synthetic_images.h. Texts for other language models: text/synthetic_text.h.
// The number of classes is the model's outputs or vocabulary if its config has one, otherwise
// synthetic.classes. At most 4,096 samples and about 64 MiB are generated; larger indices repeat
// them. The evaluation set is what data.eval_fraction holds out.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/rng.h"
#include "runtime/data/format.h"
#include "runtime/data/images/synthetic_images.h"
#include "runtime/data/text/synthetic_text.h"
#include "runtime/data/text/text_samples.h"

namespace lockstep::data {
namespace {

constexpr int64_t kTableSamples = 4096;
constexpr int64_t kTableBytes = int64_t{64} << 20;
constexpr int64_t kMapTaps = 16;  // inputs that each regression target depends on

// Random streams of one seed.
enum Draw : uint32_t { kNoise, kLabels, kMeans, kMap, kTokens };

RngStream stream_of(uint64_t seed, Draw draw) {
  return {.seed = seed, .step = 0, .lane = 0, .purpose = kRngSynthetic | uint32_t{draw}};
}

// About N(0, 1): the sum of four uniform 16-bit numbers, centred and scaled to unit variance. Two
// of them come from one Philox block.
void fill_noise(uint64_t seed, std::vector<float>& values) {
  const RngStream stream = stream_of(seed, kNoise);
  constexpr float kCentre = 4 * 32767.5f;
  constexpr float kScale = 0.8660254f / 32768.0f;  // sqrt(12 / 4) / 65536
  for (size_t i = 0; i < values.size(); i += 2) {
    const Philox4 block = philox(stream, i / 2);
    for (size_t j = 0; j < 2 && i + j < values.size(); ++j) {
      const uint32_t a = block.word[2 * j], b = block.word[2 * j + 1];
      const uint32_t sum = (a & 0xffff) + (a >> 16) + (b & 0xffff) + (b >> 16);
      values[i + j] = (static_cast<float>(sum) - kCentre) * kScale;
    }
  }
}

class SyntheticDataset final : public Dataset {
 public:
  SyntheticDataset(int64_t samples, SampleSpec input, SampleSpec target)
      : Dataset(std::move(input), std::move(target)), samples_(samples) {
    const auto bytes = static_cast<int64_t>(input_.bytes() + target_.bytes());
    rows_ = std::clamp<int64_t>(kTableBytes / bytes, 1, std::min(samples, kTableSamples));
  }

  int64_t samples() const override { return samples_; }
  int64_t record_of(int64_t index) const override { return index % rows_; }
  int64_t resident_bytes() const override {
    return static_cast<int64_t>((features_.size() + values_.size()) * sizeof(float) +
                                (tokens_.size() + labels_.size()) * sizeof(int32_t));
  }

  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    const int64_t row = key.index % rows_;
    if (!tokens_.empty()) {
      const int64_t context = input_.shape[0];
      const int32_t* tokens = &tokens_[row * (context + 1)];
      std::memcpy(input, tokens, input_.bytes());
      std::memcpy(target, tokens + 1, target_.bytes());
      return;
    }
    std::memcpy(input, &features_[row * input_.shape.elements()], input_.bytes());
    if (!labels_.empty())
      std::memcpy(target, &labels_[row], sizeof(int32_t));
    else
      std::memcpy(target, &values_[row * target_.shape.elements()], target_.bytes());
  }

  void make_classes(uint64_t seed, int64_t classes) {
    const int64_t columns = input_.shape[0];
    features_.resize(rows_ * columns);  // (rows, F)
    fill_noise(seed, features_);
    labels_.resize(rows_);  // (rows)
    const RngStream labels = stream_of(seed, kLabels), means = stream_of(seed, kMeans);
    constexpr float kMean = 0.5f, kScale = 0.8944272f;  // 1 / sqrt(1 + kMean^2)
    for (int64_t row = 0; row < rows_; ++row) {
      const auto label = static_cast<int64_t>(
          bounded_from_word(philox_word(labels, row), static_cast<uint32_t>(classes)));
      labels_[row] = static_cast<int32_t>(label);
      // One random bit per (label, column): word column / 32 of the label's row of words.
      const int64_t words = (columns + 31) / 32;
      for (int64_t word = 0; word < words; ++word) {
        const uint32_t signs = philox_word(means, label * words + word);
        const int64_t end = std::min(columns, 32 * word + 32);
        for (int64_t column = 32 * word; column < end; ++column) {
          float& x = features_[row * columns + column];
          x = (x + (signs >> (column % 32) & 1 ? kMean : -kMean)) * kScale;
        }
      }
    }
  }

  void make_values(uint64_t seed, config::TargetKind kind) {
    const int64_t columns = input_.shape[0], targets = target_.shape[0];
    features_.resize(rows_ * columns);  // (rows, F)
    fill_noise(seed, features_);
    values_.resize(rows_ * targets);  // (rows, O)
    const RngStream map = stream_of(seed, kMap);
    const int64_t taps = std::min(columns, kMapTaps);
    const float scale = 1.0f / std::sqrt(static_cast<float>(taps));
    for (int64_t target = 0; target < targets; ++target) {
      int64_t column[kMapTaps];
      float weight[kMapTaps];
      for (int64_t tap = 0; tap < taps; ++tap) {
        const uint32_t word = philox_word(map, target * kMapTaps + tap);
        column[tap] = bounded_from_word(word, static_cast<uint32_t>(columns));
        weight[tap] = (word & 1) != 0 ? scale : -scale;
      }
      for (int64_t row = 0; row < rows_; ++row) {
        float sum = 0;
        for (int64_t tap = 0; tap < taps; ++tap)
          sum += weight[tap] * features_[row * columns + column[tap]];
        const bool binary = kind == config::TargetKind::kYesNo;
        values_[row * targets + target] = binary ? (sum > 0 ? 1.0f : 0.0f) : sum;
      }
    }
    if (kind == config::TargetKind::kDistribution) make_distributions(targets);
  }

  // Makes shares of the squares of each row's values.
  void make_distributions(int64_t columns) {
    constexpr float kLeast = 1e-3f;
    for (int64_t row = 0; row < rows_; ++row) {
      float* const values = &values_[row * columns];
      float total = 0;
      for (int64_t c = 0; c < columns; ++c) total += values[c] = values[c] * values[c] + kLeast;
      for (int64_t c = 0; c < columns; ++c) values[c] /= total;
    }
  }

  void make_tokens(uint64_t seed, int64_t vocabulary) {
    const int64_t length = input_.shape[0] + 1;
    tokens_.resize(rows_ * length);  // (rows, T + 1)
    const RngStream stream = stream_of(seed, kTokens);
    // A factor coprime to the vocabulary makes the rule a permutation, so every token occurs.
    int64_t factor = vocabulary * 5 / 8 + 1;
    while (std::gcd(factor, vocabulary) != 1) ++factor;
    for (int64_t row = 0; row < rows_; ++row) {
      int64_t token = 0;
      for (int64_t i = 0; i < length; ++i) {
        const uint32_t word = philox_word(stream, row * length + i);
        const bool random = i == 0 || (word & 7) == 0;
        token = random ? bounded_from_word(word, static_cast<uint32_t>(vocabulary))
                       : (factor * token + 7) % vocabulary;
        tokens_[row * length + i] = static_cast<int32_t>(token);
      }
    }
  }

 private:
  int64_t samples_;
  int64_t rows_ = 0;  // samples generated
  std::vector<float> features_, values_;
  std::vector<int32_t> labels_, tokens_;
};

OpenedData make_samples(const SyntheticConfig& synthetic,
                        const config::ModelTraits& model,
                        uint64_t seed,
                        bool need_train) {
  OpenedData opened;
  DataSummary& summary = opened.summary;
  std::unique_ptr<SyntheticDataset> dataset;
  const bool tokens = model.input == config::ModelInput::kTokens;
  if (tokens) {
    summary.features = model.context;
    summary.classes = model.outputs > 0 ? model.outputs : synthetic.classes;
    const SampleSpec sequence{DType::kI32, Shape{model.context}};
    if (need_train) {
      dataset = std::make_unique<SyntheticDataset>(synthetic.samples, sequence, sequence);
      dataset->make_tokens(seed, summary.classes);
    }
  } else {
    const config::TargetKind kind = model.target_kind();
    const bool labels = kind == config::TargetKind::kClass;
    const bool binary = kind == config::TargetKind::kYesNo;
    summary.features = synthetic.features;
    const int64_t outputs = model.outputs > 0 ? model.outputs : binary ? 1 : synthetic.classes;
    (labels ? summary.classes : summary.target_columns) = outputs;
    const SampleSpec features{DType::kF32, Shape{synthetic.features}};
    const SampleSpec target =
        labels ? SampleSpec{DType::kI32, Shape{}} : SampleSpec{DType::kF32, Shape{outputs}};
    if (need_train) {
      dataset = std::make_unique<SyntheticDataset>(synthetic.samples, features, target);
      if (labels)
        dataset->make_classes(seed, outputs);
      else
        dataset->make_values(seed, kind);
    }
  }
  summary.kind = "synthetic";
  summary.details = fmt::format(" of {} {}, {} {}",
                                summary.features,
                                tokens ? "tokens" : "features",
                                std::max(summary.classes, summary.target_columns),
                                summary.classes > 0 ? "classes" : "targets");
  opened.train = std::move(dataset);
  describe(&opened);
  return opened;
}

class Synthetic final : public DataFormat {
 public:
  explicit Synthetic(const SyntheticConfig& synthetic) : synthetic_(synthetic) {}

  bool supports(config::ModelInput /*input*/) const override { return true; }
  bool provides(config::TargetKind kind, config::ModelInput input) const override {
    using Kind = config::TargetKind;
    if (kind == Kind::kClass) return true;
    if (input == config::ModelInput::kImages) return kind == Kind::kPixelClasses;
    if (input == config::ModelInput::kFeatures)
      return kind == Kind::kYesNo || kind == Kind::kValues || kind == Kind::kDistribution;
    return kind == Kind::kTokens || kind == Kind::kTokenClasses || kind == Kind::kValues ||
           kind == Kind::kNone || kind == Kind::kSimilarity;
  }
  bool has_eval() const override { return false; }
  std::vector<std::string> files() const override { return {}; }

  OpenedSource open(const config::ModelTraits& model,
                    uint64_t seed,
                    bool need_train) const override {
    if (model.wants_images()) {
      const bool masks = model.target_kind() == config::TargetKind::kPixelClasses;
      return make_synthetic_images(synthetic_, seed, need_train, masks);
    }
    if (model.input == config::ModelInput::kTokens && takes_segments(model))
      return make_synthetic_text(synthetic_, model, seed, need_train);
    return make_samples(synthetic_, model, seed, need_train);
  }
  PlaceholderData make_placeholder(const MissingFile& /*missing*/) const override {
    LOCKSTEP_CHECK(false);
  }

 private:
  const SyntheticConfig& synthetic_;
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& /*data*/,
                                              const SyntheticConfig& synthetic) {
  return std::make_unique<Synthetic>(synthetic);
}

}  // namespace lockstep::data
