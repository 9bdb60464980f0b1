// Implements tokenizer.json: added tokens are split off, the rest is normalized and split into
// words, and the model encodes each word. Truncation and padding, which such a file may ask for,
// are left to the code that builds samples from the ids.
#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/tokenizer/added_tokens.h"
#include "runtime/tokenizer/decoder.h"
#include "runtime/tokenizer/make_tokenizer.h"
#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/post_processor.h"
#include "runtime/tokenizer/pre_tokenizer.h"
#include "runtime/tokenizer/token_model.h"
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/tokenizer/unicode.h"
#include "runtime/tokenizer/word_cache.h"

namespace lockstep::tokenizer {
namespace {

class HuggingFaceTokenizer final : public Tokenizer {
 public:
  HuggingFaceTokenizer(const JsonNode& node, std::unique_ptr<TokenModel> model)
      : model_(std::move(model)),
        normalizer_(node.find("normalizer")),
        pre_tokenizer_(node.find("pre_tokenizer"), model_->wants_bytes()),
        added_(node.find("added_tokens"), model_->vocabulary(), normalizer_),
        post_processor_(read_post_processor(node.find("post_processor"))),
        decoder_(node.find("decoder")) {
    if (pre_tokenizer_.gives_bytes()) model_->take_bytes();
  }

  std::unique_ptr<TokenEncoder> encoder() const override;

  std::string decode(std::span<const uint32_t> ids, bool skip_special) const override {
    std::vector<std::string> tokens;
    GrowthLimit limit = GrowthLimit::of_ids(ids.size());
    limit.enter(model_->name());
    size_t bytes = 0;
    for (const uint32_t id : ids) {
      const AddedToken* added = added_.token_of(id);
      const std::string* token =
          added != nullptr ? &added->shown : model_->vocabulary().token_of(id);
      if (token == nullptr || (skip_special && added_.is_special(*token))) continue;
      limit.check(bytes += token->size());
      tokens.push_back(*token);
    }
    return decoder_.decode(std::move(tokens), limit);
  }

  std::optional<uint32_t> id_of(std::string_view token) const override {
    const auto added = added_.ids().find(std::string(token));
    return added != added_.ids().end() ? added->second : model_->vocabulary().id_of(token);
  }

  uint32_t id_limit() const override {
    return std::max({model_->vocabulary().largest_id(),
                     added_.largest_id(),
                     largest_id_of(post_processor_.single),
                     largest_id_of(post_processor_.pair)}) +
           1;
  }

  bool is_special(uint32_t id) const override {
    const AddedToken* const added = added_.token_of(id);
    return added != nullptr && added_.is_special(added->content);
  }

  const TextTemplate& text_template() const override { return post_processor_.single; }
  const TextTemplate& pair_template() const override { return post_processor_.pair; }

 private:
  friend class HuggingFaceEncoder;

  std::unique_ptr<TokenModel> model_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  AddedTokens added_;
  PostProcessor post_processor_;
  Decoder decoder_;
};

class HuggingFaceEncoder final : public TokenEncoder, private PieceSink {
 public:
  explicit HuggingFaceEncoder(const HuggingFaceTokenizer& tokenizer)
      : tokenizer_(tokenizer), words_(tokenizer.pre_tokenizer_, *this) {}

  void encode(std::string_view text, bool with_special, std::vector<uint32_t>* ids) override {
    if (text.size() > INT32_MAX)
      throw DataError("a text has {} bytes; a tokenizer accepts less than 2 GiB", text.size());
    if (valid_utf8_bytes(text) != text.size()) {
      valid_text_.clear();
      append_as_utf8(&valid_text_, text);
      text = valid_text_;
    }
    ids_ = ids;
    limit_.emplace(GrowthLimit::of_text(text.size()));
    scratch_.limit = &*limit_;
    words_.begin(&*limit_);
    const PostProcessor& ends = tokenizer_.post_processor_;
    if (with_special) ids->insert(ids->end(), ends.before.begin(), ends.before.end());
    tokenizer_.added_.split(
        text,
        /*normalized=*/false,
        *limit_,
        [&](size_t begin, size_t end) {
          encode_part(text.substr(begin, end - begin), begin == 0, text.data() + text.size());
        },
        [&](uint32_t id) { ids->push_back(id); });
    if (with_special) ids->insert(ids->end(), ends.after.begin(), ends.after.end());
  }

 private:
  // `readable_end`: memory up to there may be read.
  void encode_part(std::string_view part, bool at_start, const char* readable_end) {
    if (!tokenizer_.normalizer_.empty()) {
      normalized_.text.assign(part);
      normalized_.at_start = at_start;
      tokenizer_.normalizer_.apply(&normalized_, *limit_);
      part = normalized_.text;
      at_start = normalized_.at_start;
      readable_end = part.data() + part.size();
    }
    part_begin_ = part.data();
    readable_end_ = readable_end;
    tokenizer_.added_.split(
        part,
        /*normalized=*/true,
        *limit_,
        [&](size_t begin, size_t end) {
          words_.split({part.substr(begin, end - begin), at_start && begin == 0});
        },
        [&](uint32_t id) { ids_->push_back(id); });
  }

  void take(TextPiece word) override {
    if (word.text.size() > WordCache::kMaxBytes) return encode_word(word.text);
    // The end of a text that a pre-tokenizer step has made is the end of its readable memory.
    const char* word_end = word.text.data() + word.text.size();
    const bool in_part = std::greater_equal<>()(word.text.data(), part_begin_) &&
                         std::less_equal<>()(word_end, readable_end_);
    const WordCache::Key key = WordCache::key_of(word.text, in_part ? readable_end_ : word_end);
    if (const auto known = cache_.find(key); !known.empty()) {
      ids_->insert(ids_->end(), known.begin(), known.end());
      return;
    }
    const size_t before = ids_->size();
    encode_word(word.text);
    const auto made = std::span(*ids_).subspan(before);
    if (!made.empty() && made.size() <= WordCache::kMaxIds) cache_.put(key, made);
  }

  void encode_word(std::string_view word) {
    limit_->enter(tokenizer_.model_->name());
    tokenizer_.model_->encode(word, scratch_, ids_);
  }

  const HuggingFaceTokenizer& tokenizer_;
  PreTokenizer::Run words_;
  std::optional<GrowthLimit> limit_;  // of the current text
  ModelScratch scratch_;
  WordCache cache_;
  std::string valid_text_;     // the text as valid UTF-8
  NormalizedText normalized_;  // a part of the text
  const char* part_begin_ = nullptr;
  const char* readable_end_ = nullptr;
  std::vector<uint32_t>* ids_ = nullptr;
};

std::unique_ptr<TokenEncoder> HuggingFaceTokenizer::encoder() const {
  return std::make_unique<HuggingFaceEncoder>(*this);
}

}  // namespace

std::unique_ptr<const Tokenizer> parse_tokenizer_json(std::string_view text,
                                                      const std::string& name) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const JsonError& error) {
    throw DataError("{}: {}", name, error.what());
  }
  const JsonNode node(json, name);
  return std::make_unique<HuggingFaceTokenizer>(node, make_token_model(node.at("model")));
}

std::unique_ptr<const Tokenizer> make_tokenizer(const Json& parts,
                                                const std::string& name,
                                                std::unique_ptr<TokenModel> model) {
  return std::make_unique<HuggingFaceTokenizer>(JsonNode(parts, name), std::move(model));
}

}  // namespace lockstep::tokenizer
