// SentencePiece's .model, read and applied by its library.
#include <sentencepiece_processor.h>

#include <utility>

#include "runtime/base/error.h"
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep {
namespace {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string_view bytes, const std::string& name) : name_(name) {
    const auto status = processor_.LoadFromSerializedProto({bytes.data(), bytes.size()});
    if (!status.ok())
      throw DataError(
          "{}: neither a tokenizer.json nor a model of SentencePiece: {}", name, status.ToString());
  }

  std::unique_ptr<TokenEncoder> encoder() const override;

  // Control tokens have no text of their own.
  std::string decode(std::span<const uint32_t> ids, bool) const override {
    std::vector<int> known;
    for (const uint32_t id : ids)
      if (id < id_limit()) known.push_back(static_cast<int>(id));
    std::string text, mended;
    check(processor_.Decode(known, &text));
    append_as_utf8(&mended, text);
    return mended;
  }

  std::optional<uint32_t> id_of(std::string_view token) const override {
    const int id = processor_.PieceToId({token.data(), token.size()});
    if (processor_.IdToPiece(id) != token) return std::nullopt;
    return static_cast<uint32_t>(id);
  }

  uint32_t id_limit() const override { return static_cast<uint32_t>(processor_.GetPieceSize()); }

  // Throws DataError where the library failed.
  void check(const sentencepiece::util::Status& status) const {
    if (!status.ok()) throw DataError("{}: {}", name_, status.ToString());
  }

  const sentencepiece::SentencePieceProcessor& processor() const { return processor_; }

 private:
  std::string name_;
  sentencepiece::SentencePieceProcessor processor_;
};

class SentencePieceEncoder final : public TokenEncoder {
 public:
  explicit SentencePieceEncoder(const SentencePieceTokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Before a text stands the beginning of a sentence, where the model has such a token: as models
  // that are trained with these files expect. Nothing stands after it.
  void encode(std::string_view text, bool with_special, std::vector<uint32_t>* ids) override {
    if (text.size() > INT32_MAX)
      throw DataError("a text of {} bytes; a tokenizer takes less than 2 GiB", text.size());
    mended_.clear();
    append_as_utf8(&mended_, text);
    const int bos = tokenizer_.processor().bos_id();
    if (with_special && bos >= 0) ids->push_back(static_cast<uint32_t>(bos));
    tokenizer_.check(tokenizer_.processor().Encode(mended_, &made_));
    ids->insert(ids->end(), made_.begin(), made_.end());
  }

 private:
  const SentencePieceTokenizer& tokenizer_;
  std::string mended_;
  std::vector<int> made_;
};

std::unique_ptr<TokenEncoder> SentencePieceTokenizer::encoder() const {
  return std::make_unique<SentencePieceEncoder>(*this);
}

}  // namespace

std::unique_ptr<const Tokenizer> parse_sentencepiece(std::string_view bytes,
                                                     const std::string& name) {
  return std::make_unique<SentencePieceTokenizer>(bytes, name);
}

}  // namespace lockstep
