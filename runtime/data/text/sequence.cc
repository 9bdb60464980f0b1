#include "runtime/data/text/sequence.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/rng.h"

namespace lockstep::data {
namespace {

constexpr uint32_t kShiftPurpose = kRngShuffle | 1;  // kRngShuffle itself is the sampler's
constexpr int64_t kScanTokens = 1 << 16;

template <typename Token>
Token load(const std::byte* bytes, int64_t index) {
  Token token;
  std::memcpy(&token, bytes + index * static_cast<int64_t>(sizeof(Token)), sizeof(Token));
  return token;
}

template <typename Token>
int64_t largest_of(const std::byte* bytes, int64_t count) {
  Token largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, load<Token>(bytes, i));
  return largest;
}

// Calls `body` with a value of the type in which tokens are stored.
template <typename Body>
auto with_token_type(int token_bytes, Body&& body) {
  if (token_bytes == 1) return body(uint8_t{});
  if (token_bytes == 2) return body(uint16_t{});
  return body(uint32_t{});
}

class SequenceDataset final : public Dataset {
 public:
  SequenceDataset(std::shared_ptr<const SourceFile> file,
                  TokenSequence tokens,
                  const config::ModelTraits& model,
                  uint64_t seed,
                  bool shifted)
      : Dataset({DType::kI32, Shape{model.context}}, {DType::kI32, Shape{model.context}}),
        file_(std::move(file)),
        tokens_(tokens),
        context_(model.context),
        seed_(seed),
        predicts_next_(model.text_task == config::TextTask::kNextToken) {
    const int64_t context = context_, ahead = predicts_next_ ? 1 : 0;
    const int64_t inputs = tokens.count() - ahead;
    if (inputs < context)
      throw DataError("{}: {} tokens are too few for one sample of {}{} = {}",
                      file_->name(),
                      tokens.count(),
                      model.field("context"),
                      predicts_next_ ? " + 1" : "",
                      context + ahead);
    // Room for the largest shift costs at most one sample. If there is only one sample, the shift
    // is limited to the tokens that are left.
    samples_ =
        shifted ? std::max<int64_t>(1, (inputs - (context - 1)) / context) : inputs / context;
    if (shifted) shifts_ = std::min(context, inputs - samples_ * context + 1);
  }

  int64_t samples() const override { return samples_; }

  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    const int64_t first = key.index * context_ + (key.augment ? shift(key.epoch) : 0);
    int32_t* x = reinterpret_cast<int32_t*>(input);   // (T)
    int32_t* y = reinterpret_cast<int32_t*>(target);  // (T)
    with_token_type(tokens_.token_bytes, [&](auto token) { copy<decltype(token)>(first, x, y); });
  }

  int64_t resident_bytes() const override { return static_cast<int64_t>(tokens_.bytes.size()); }

 private:
  int64_t shift(int64_t epoch) const {
    const RngStream stream{
        .seed = seed_, .step = static_cast<uint32_t>(epoch), .purpose = kShiftPurpose};
    return bounded_from_word(philox_word(stream, 0), static_cast<uint32_t>(shifts_));
  }

  template <typename Token>
  void copy(int64_t first, int32_t* x, int32_t* y) const {
    const std::byte* from = tokens_.bytes.data();
    for (int64_t t = 0; t < context_; ++t)
      x[t] = static_cast<int32_t>(load<Token>(from, first + t));
    if (!predicts_next_) return;
    std::memcpy(y, x + 1, static_cast<size_t>(context_ - 1) * sizeof(int32_t));
    y[context_ - 1] = static_cast<int32_t>(load<Token>(from, first + context_));
  }

  std::shared_ptr<const SourceFile> file_;
  TokenSequence tokens_;
  int64_t context_;
  uint64_t seed_;
  int64_t samples_ = 0;
  bool predicts_next_;
  int64_t shifts_ = 1;  // shift is in [0, shifts_)
};

}  // namespace

int64_t TokenSequence::operator[](int64_t index) const {
  return with_token_type(token_bytes, [&](auto token) {
    return static_cast<int64_t>(load<decltype(token)>(bytes.data(), index));
  });
}

int64_t largest_token(const TokenSequence& tokens) {
  return with_token_type(tokens.token_bytes, [&](auto token) {
    return largest_of<decltype(token)>(tokens.bytes.data(), tokens.count());
  });
}

SequenceParts hold_out_end(const HeldOut& held_out,
                           const TokenSequence& tokens,
                           const config::ModelTraits& model,
                           const std::string& name,
                           const std::string& unit) {
  const int64_t count = tokens.count();
  const auto held = static_cast<int64_t>(static_cast<double>(count) * held_out.share);
  const int64_t ahead = model.text_task == config::TextTask::kNextToken ? 1 : 0;
  const auto require = [&](int64_t part, const char* use, const char* remedy) {
    if (part >= model.context + ahead) return;
    throw DataError(
        "{}: {} leaves {} of {} {} for {}, too few for one sample of {} ({}); set a {} one",
        name,
        held_out.text(),
        part,
        count,
        unit,
        use,
        model.context + ahead,
        ahead > 0 ? model.field("context") + " + 1" : model.field("context"),
        remedy);
  };
  require(held, "evaluation", "larger");
  require(count - held, "training", "smaller");
  const auto boundary = static_cast<size_t>((count - held) * tokens.token_bytes);
  return {{tokens.bytes.first(boundary), tokens.token_bytes},
          {tokens.bytes.subspan(boundary), tokens.token_bytes},
          held_out.describe(held, count, unit + ", at the end")};
}

void require_vocabulary(const TokenSequence& tokens,
                        int64_t vocabulary,
                        const config::ModelTraits& model,
                        const std::string& name) {
  if (vocabulary >= int64_t{1} << (8 * tokens.token_bytes)) return;  // no token can be too large
  for (int64_t begin = 0; begin < tokens.count(); begin += kScanTokens) {
    const int64_t end = std::min(tokens.count(), begin + kScanTokens);
    const TokenSequence block{
        tokens.bytes.subspan(begin * tokens.token_bytes, (end - begin) * tokens.token_bytes),
        tokens.token_bytes};
    if (largest_token(block) < vocabulary) continue;
    for (int64_t i = begin; i < end; ++i)
      if (tokens[i] >= vocabulary)
        throw DataError(
            "{}: token {} is {}; ids must be below the vocabulary of {} ({})",
            name,
            i,
            tokens[i],
            vocabulary,
            model.file.empty() ? model.field(model.outputs_field) : model.describe_outputs());
  }
}

std::unique_ptr<Dataset> make_sequence_dataset(std::shared_ptr<const SourceFile> file,
                                               TokenSequence tokens,
                                               const config::ModelTraits& model,
                                               uint64_t seed,
                                               bool shifted) {
  return std::make_unique<SequenceDataset>(std::move(file), tokens, model, seed, shifted);
}

}  // namespace lockstep::data
