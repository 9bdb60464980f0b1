#include "runtime/data/text/masking.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/rng.h"
#include "runtime/data/text/text_samples.h"

namespace lockstep::data {
namespace {

constexpr uint32_t kMaskPurpose = kRngShuffle | 3;  // sequence.cc has 1, table.cc 2
constexpr float kHidden = 0.8f, kHiddenOrRandom = 0.9f;

class MaskedDataset final : public WrappedDataset {
 public:
  MaskedDataset(std::unique_ptr<Dataset> tokens,
                std::shared_ptr<const Masking> masking,
                const config::ModelTraits& model)
      : WrappedDataset(std::move(tokens)),
        masking_(std::move(masking)),
        context_(model.context),
        packed_(dataset_->input().shape.rank() == 2) {
    input_ = text_input(model, packed_);
    target_ = text_target(model, /*outputs=*/0);
    LOCKSTEP_CHECK(target_.bytes() == dataset_->target().bytes());
  }

  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    dataset_->read(key, input, target);  // hide() overwrites the target
    auto* const rows = reinterpret_cast<int32_t*>(input);
    int32_t* const documents = rows + kDocumentRow * context_;
    if (!packed_) {
      std::fill_n(documents, context_, 0);
      int32_t* const positions = rows + kPositionRow * context_;
      std::iota(positions, positions + context_, 0);
    }
    std::fill_n(rows + kSegmentRow * context_, context_, 0);
    hide(key, documents, rows + kTokenRow * context_, reinterpret_cast<int32_t*>(target));
  }

  int64_t resident_bytes() const override {
    return dataset_->resident_bytes() + static_cast<int64_t>(masking_->special.size() / 8);
  }

 private:
  // The random words for a position of a sample: [0] decides whether the token is chosen, [1] what
  // it becomes, [2] which random token.
  Philox4 draw(const SampleKey& key, int64_t position) const {
    const RngStream stream{.seed = key.augment ? masking_->seed : 0,
                           .step = static_cast<uint32_t>(key.epoch),
                           .lane = 0,
                           .purpose = kMaskPurpose};
    return philox(stream, static_cast<uint64_t>(key.index * context_ + position));
  }

  void hide(const SampleKey& key,
            const int32_t* documents,
            int32_t* tokens,
            int32_t* targets) const {
    // The position with the smallest random word: it is chosen if no other is.
    std::optional<int64_t> fallback;
    uint32_t min_word = 0;
    bool chosen = false;
    for (int64_t t = 0; t < context_; ++t) {
      targets[t] = -1;
      if (documents[t] < 0 || masking_->special[static_cast<size_t>(tokens[t])]) continue;
      const Philox4 words = draw(key, t);
      if (!fallback || words.word[0] < min_word) {
        fallback = t;
        min_word = words.word[0];
      }
      if (uniform_from_word(words.word[0]) >= masking_->share) continue;
      choose(words, tokens + t, targets + t);
      chosen = true;
    }
    if (!chosen && fallback) choose(draw(key, *fallback), tokens + *fallback, targets + *fallback);
  }

  void choose(const Philox4& words, int32_t* token, int32_t* target) const {
    *target = *token;
    const float what = uniform_from_word(words.word[1]);
    if (what < kHidden)
      *token = masking_->mask_token;
    else if (what < kHiddenOrRandom)
      *token = static_cast<int32_t>(
          bounded_from_word(words.word[2], static_cast<uint32_t>(masking_->special.size())));
  }

  std::shared_ptr<const Masking> masking_;
  int64_t context_;
  bool packed_;
};

}  // namespace

Masking masking_of(const tokenizer::Tokenizer& tokenizer,
                   const std::string& field,
                   float share,
                   uint64_t seed) {
  Masking masking;
  masking.share = share;
  masking.seed = seed;
  std::optional<uint32_t> mask;
  for (const char* name : {"[MASK]", "<mask>"})
    if (!mask) mask = tokenizer.id_of(name);
  if (!mask)
    throw ConfigError(
        "{}: has no token [MASK] or <mask>, which the model needs to hide tokens; use a tokenizer "
        "that has one",
        field);
  masking.mask_token = static_cast<int32_t>(*mask);
  masking.special.resize(tokenizer.id_limit());
  for (uint32_t id = 0; id < tokenizer.id_limit(); ++id)
    masking.special[id] = tokenizer.is_special(id);
  return masking;
}

std::unique_ptr<Dataset> mask_tokens(std::unique_ptr<Dataset> tokens,
                                     std::shared_ptr<const Masking> masking,
                                     const config::ModelTraits& model) {
  return std::make_unique<MaskedDataset>(std::move(tokens), std::move(masking), model);
}

}  // namespace lockstep::data
