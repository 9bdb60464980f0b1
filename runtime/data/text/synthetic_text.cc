#include "runtime/data/text/synthetic_text.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "runtime/base/rng.h"
#include "runtime/data/text/text_samples.h"

namespace lockstep::data {
namespace {

constexpr int64_t kMaxSamples = 4096;
constexpr int64_t kMaxBytes = int64_t{64} << 20;
constexpr uint32_t kHidden = 0x24924925;  // 2^32 / 7

// Random streams of one seed, different from those of synthetic.cc.
enum Draw : uint32_t { kLengths = 16, kLabels, kWords, kHiding, kMeaning };

int64_t texts_of_synthetic(const config::ModelTraits& model) {
  return model.text_task == config::TextTask::kEmbeddings ? 2 : 1;
}

class SyntheticText final : public Dataset {
 public:
  SyntheticText(int64_t samples,
                const config::ModelTraits& model,
                int64_t vocabulary,
                int64_t outputs,
                uint64_t seed)
      : Dataset(text_input(model, true, texts_of_synthetic(model)), text_target(model, outputs)),
        samples_(samples),
        task_(model.text_task),
        segments_(model.segments),
        time_(model.context),
        vocabulary_(vocabulary),
        outputs_(outputs),
        seed_(seed) {
    const auto bytes = static_cast<int64_t>(input_.bytes() + target_.bytes());
    rows_ = std::clamp<int64_t>(kMaxBytes / bytes, 1, std::min(samples, kMaxSamples));
    inputs_.resize(static_cast<size_t>(rows_ * input_.shape.elements()));
    (target_.dtype == DType::kI32 ? targets_.resize(static_cast<size_t>(rows_ * target_elements()))
                                  : values_.resize(static_cast<size_t>(rows_ * target_elements())));
    for (int64_t row = 0; row < rows_; ++row) make(row);
  }

  int64_t samples() const override { return samples_; }
  int64_t record_of(int64_t index) const override { return index % rows_; }
  int64_t resident_bytes() const override {
    return rows_ * static_cast<int64_t>(input_.bytes() + target_.bytes());
  }

  int64_t length(int64_t index) const override { return length_of(index % rows_); }

  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    const int64_t row = key.index % rows_;
    std::memcpy(input, &inputs_[static_cast<size_t>(row * input_elements())], input_.bytes());
    const auto first = static_cast<size_t>(row * target_elements());
    if (values_.empty())
      std::memcpy(target, &targets_[first], target_.bytes());
    else
      std::memcpy(target, &values_[first], target_.bytes());
  }

 private:
  int64_t input_elements() const { return input_.shape.elements(); }
  int64_t target_elements() const { return target_.shape.elements(); }

  uint32_t draw(Draw draw, int64_t i) const {
    return philox_word({.seed = seed_, .purpose = kRngSynthetic | uint32_t{draw}},
                       static_cast<uint64_t>(i));
  }
  int64_t below(Draw of, int64_t i, int64_t bound) const {
    return bounded_from_word(draw(of, i), static_cast<uint32_t>(bound));
  }

  int64_t length_of(int64_t row) const { return 1 + below(kLengths, 2 * row, time_); }

  void make(int64_t row) {
    const int64_t length = length_of(row);
    const bool two_segments = segments_ > 1 && task_ != config::TextTask::kEmbeddings;
    const int64_t second = two_segments ? below(kLengths, 2 * row + 1, length + 1) : length;
    const int64_t label = outputs_ > 0 ? below(kLabels, row, outputs_) : 0;
    int32_t* const tokens = &inputs_[static_cast<size_t>(row * input_elements())];
    fill_tokens(row, length, label, tokens);
    for (int64_t t = 0; t < time_; ++t) {
      const bool inside = t < length;
      tokens[kDocumentRow * time_ + t] = inside ? 0 : -1;
      tokens[kPositionRow * time_ + t] = inside ? static_cast<int32_t>(t) : 0;
      tokens[kSegmentRow * time_ + t] = inside && t >= second ? 1 : 0;
    }
    switch (task_) {
      case config::TextTask::kMaskedTokens: hide(row, length, tokens); return;
      case config::TextTask::kTokenClasses: tag(row, length, tokens); return;
      case config::TextTask::kSequenceValues: add_values(row, length, tokens); return;
      case config::TextTask::kEmbeddings: add_partner(row, length, tokens); return;
      default: targets_[static_cast<size_t>(row)] = static_cast<int32_t>(label);
    }
  }

  // Draws the first `length` of the tokens (T).
  void fill_tokens(int64_t row, int64_t length, int64_t label, int32_t* tokens) const {
    const bool of_class = task_ == config::TextTask::kSequenceClass && outputs_ <= vocabulary_;
    const bool hides = task_ == config::TextTask::kMaskedTokens && vocabulary_ > 1;
    const int64_t words = hides ? vocabulary_ - 1 : vocabulary_;
    // A factor coprime to the words makes the rule a permutation, so every token occurs.
    int64_t factor = words * 5 / 8 + 1;
    while (std::gcd(factor, words) != 1) ++factor;
    int64_t token = 0;
    for (int64_t t = 0; t < length; ++t) {
      const uint32_t word = draw(kWords, row * time_ + t);
      const bool random = t == 0 || (word & 7) == 0;
      if (of_class && (word & 1) != 0) {
        const int64_t multiples = (vocabulary_ - label + outputs_ - 1) / outputs_;
        token = label + outputs_ * bounded_from_word(word, static_cast<uint32_t>(multiples));
      } else {
        token = random || of_class ? bounded_from_word(word, static_cast<uint32_t>(words))
                                   : (factor * token + 7) % words;
      }
      tokens[t] = static_cast<int32_t>(token);
    }
  }

  void hide(int64_t row, int64_t length, int32_t* tokens) {
    int32_t* const targets = &targets_[static_cast<size_t>(row * time_)];
    for (int64_t t = 0; t < time_; ++t) {
      const bool hidden = t < length && draw(kHiding, row * time_ + t) < kHidden;
      targets[t] = hidden ? tokens[t] : -1;
      if (hidden) tokens[t] = static_cast<int32_t>(vocabulary_ - 1);
    }
  }

  void tag(int64_t row, int64_t length, const int32_t* tokens) {
    int32_t* const targets = &targets_[static_cast<size_t>(row * time_)];
    for (int64_t t = 0; t < time_; ++t)
      targets[t] = t < length ? static_cast<int32_t>(below(kMeaning, tokens[t], outputs_)) : -1;
  }

  void add_values(int64_t row, int64_t length, const int32_t* tokens) {
    for (int64_t output = 0; output < outputs_; ++output) {
      int64_t count = 0;
      for (int64_t t = 0; t < length; ++t)
        count += draw(kMeaning, output * vocabulary_ + tokens[t]) & 1;
      values_[static_cast<size_t>(row * outputs_ + output)] =
          2 * static_cast<float>(count) / static_cast<float>(length) - 1;
    }
  }

  // The second text of a pair: the tokens of the first, rotated.
  void add_partner(int64_t row, int64_t length, int32_t* tokens) {
    int32_t* const partner = tokens + kTextRows * time_;
    std::copy_n(tokens, kTextRows * time_, partner);
    std::rotate(partner, partner + length / 2, partner + length);
    values_[static_cast<size_t>(row)] = std::numeric_limits<float>::quiet_NaN();
  }

  int64_t samples_;
  config::TextTask task_;
  int64_t segments_, time_, vocabulary_, outputs_;
  uint64_t seed_;
  int64_t rows_ = 0;              // samples generated
  std::vector<int32_t> inputs_;   // (rows, texts, 4, T)
  std::vector<int32_t> targets_;  // (rows, ...)
  std::vector<float> values_;     // (rows, O)
};

}  // namespace

OpenedData make_synthetic_text(const SyntheticConfig& synthetic,
                               const config::ModelTraits& model,
                               uint64_t seed,
                               bool need_train) {
  OpenedData opened;
  DataSummary& summary = opened.summary;
  const bool of_tokens = model.text_task == config::TextTask::kMaskedTokens;
  const bool no_outputs = of_tokens || model.text_task == config::TextTask::kHiddenStates ||
                          model.text_task == config::TextTask::kEmbeddings;
  const int64_t outputs = no_outputs ? 0 : model.outputs > 0 ? model.outputs : synthetic.classes;
  const int64_t given = of_tokens ? model.outputs : model.vocabulary;
  const int64_t vocabulary = given > 0 ? given : synthetic.classes;
  summary.features = model.context;
  summary.texts = texts_of_synthetic(model);
  (model.text_task == config::TextTask::kSequenceValues ? summary.target_columns
                                                        : summary.classes) =
      of_tokens ? vocabulary : outputs;
  if (!of_tokens) summary.vocabulary = vocabulary;
  summary.kind = "synthetic";
  summary.details = fmt::format(" of up to {} tokens of {}{}",
                                model.context,
                                vocabulary,
                                of_tokens ? "" : fmt::format(", {} outputs", outputs));
  if (need_train)
    opened.train =
        std::make_unique<SyntheticText>(synthetic.samples, model, vocabulary, outputs, seed);
  describe(&opened);
  return opened;
}

}  // namespace lockstep::data
