// The unigram language model (Kudo 2018).
//
// Each token has a score, its log probability. A word becomes the sequence of tokens with the
// greatest sum of scores. find_paths() computes it by dynamic programming (the Viterbi algorithm):
//
//   paths[i]   the best way to split word[0, i): its score, and the begin and id of its last token
//   paths[begin + bytes].score = max of paths[begin].score + score of a token of `bytes` bytes
//
// `begin` moves from left to right, one character at a time. One walk down the trie tokens_ finds
// all tokens with which the rest of the word begins. If no token is exactly the next character, the
// character is offered as unknown, with a score that is kUnknownPenalty below the worst token's. So
// every character's end can be reached, and paths[word.size()] is always valid. If two ways have
// equal sums, the one found first stays, which is the one with the longer last token.
//
// encode() then follows the begins back from the end of the word. Consecutive unknown characters
// are fused into one text, which becomes a token with exactly that text, the tokens of its bytes
// (byte_fallback), or one unknown token. Sums are in double precision, as in the `tokenizers`
// package; the sentencepiece library uses float32 (sentencepiece.cc), and ties may depend on it.

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/tokenizer/byte_trie.h"
#include "runtime/tokenizer/token_model.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

constexpr double kUnknownPenalty = 10;

class Unigram final : public TokenModel {
 public:
  // `name`: the path of the model's JSON node, for messages.
  Unigram(Vocabulary vocabulary,
          std::vector<double> scores,
          std::optional<uint32_t> unknown,
          bool byte_fallback,
          std::string name)
      : TokenModel(std::move(vocabulary)),
        scores_(std::move(scores)),
        unknown_(unknown),
        name_(std::move(name)) {
    std::vector<ByteTrie::Entry> entries;
    this->vocabulary().for_each(
        [&](std::string_view token, uint32_t id) { entries.emplace_back(token, id); });
    tokens_ = ByteTrie(std::move(entries));
    double min_score = std::numeric_limits<double>::infinity();
    for (const double score : scores_) min_score = std::min(min_score, score);
    unknown_score_ = min_score - kUnknownPenalty;
    if (!byte_fallback) return;
    for (int byte = 0; byte < 256; ++byte)
      byte_ids_.push_back(this->vocabulary().id_of(fmt::format("<0x{:02X}>", byte)));
  }

  void encode(std::string_view word,
              ModelScratch& scratch,
              std::vector<uint32_t>* ids) const override {
    find_paths(word, scratch);
    // Follows the best path from the end of the word. A run of unknown characters becomes one
    // piece: unknown_end is where it ends, and it is added at the first known token before it.
    const size_t before = ids->size();
    size_t unknown_end = 0;
    for (size_t end = word.size(); end > 0;) {
      const ModelScratch::Path& path = scratch.paths[end];
      const auto begin = static_cast<size_t>(path.begin);
      if (unknown_ == path.id) {
        unknown_end = std::max(unknown_end, end);
      } else {
        if (unknown_end > 0) add_unknown(word.substr(end, unknown_end - end), ids);
        unknown_end = 0;
        ids->push_back(path.id);
      }
      end = begin;
    }
    if (unknown_end > 0) add_unknown(word.substr(0, unknown_end), ids);
    std::reverse(ids->begin() + static_cast<ptrdiff_t>(before), ids->end());
  }

 private:
  void find_paths(std::string_view word, ModelScratch& scratch) const {
    std::vector<ModelScratch::Path>& paths = scratch.paths;
    paths.assign(word.size() + 1, {0, -1, 0});
    for (size_t begin = 0; begin < word.size();) {
      const double score_here = paths[begin].score;
      const size_t char_bytes = decode_char(word.data() + begin).bytes;
      const auto offer = [&](size_t bytes, double score, uint32_t id) {
        ModelScratch::Path& path = paths[begin + bytes];
        if (path.begin < 0 || score > path.score) path = {score, static_cast<int32_t>(begin), id};
      };
      bool char_is_token = false;
      tokens_.for_each_prefix(word.substr(begin), *scratch.limit, [&](size_t bytes, uint32_t id) {
        offer(bytes, scores_[id] + score_here, id);
        char_is_token |= bytes == char_bytes;
      });
      if (!char_is_token) {
        if (!unknown_)
          throw DataError("{}.unk_id: value is null, but '{}' is in no token",
                          name_,
                          word.substr(begin, char_bytes));
        offer(char_bytes, unknown_score_ + score_here, *unknown_);
      }
      begin += char_bytes;
    }
  }

  // Appends ids in reverse order.
  void add_unknown(std::string_view text, std::vector<uint32_t>* ids) const {
    if (const auto id = vocabulary().id_of(text)) return ids->push_back(*id);
    const auto has_token = [this](char c) {
      return byte_ids_[static_cast<uint8_t>(c)].has_value();
    };
    if (byte_ids_.empty() || !std::ranges::all_of(text, has_token))
      return ids->push_back(*unknown_);
    for (size_t i = text.size(); i-- > 0;)
      ids->push_back(*byte_ids_[static_cast<uint8_t>(text[i])]);
  }

  std::vector<double> scores_;  // for each id
  ByteTrie tokens_;
  std::optional<uint32_t> unknown_;
  double unknown_score_;
  std::vector<std::optional<uint32_t>> byte_ids_;  // [256], or empty without byte_fallback
  std::string name_;
};

bool is_number(const Json& value) {
  using Kind = Json::Kind;
  return value.kind() == Kind::kInteger || value.kind() == Kind::kUnsigned ||
         value.kind() == Kind::kDouble;
}

}  // namespace

std::unique_ptr<TokenModel> make_unigram(const JsonNode& node) {
  const JsonNode tokens = node.at("vocab");
  Vocabulary vocabulary;
  std::vector<double> scores;
  for (size_t i = 0; i < tokens.elements(); ++i) {
    const Json& token = tokens.value()[i];
    if (token.kind() != Json::Kind::kArray || token.size() != 2 || !token[0].is_string() ||
        !is_number(token[1]))
      tokens.element(i).refuse("a token and its score");
    vocabulary.add(token[0].get<std::string>(), static_cast<uint32_t>(i));
    scores.push_back(token[1].get<double>());
  }
  std::optional<uint32_t> unknown;
  if (const JsonNode id = node.find("unk_id"); !id.is_null()) {
    unknown = id.id();
    if (*unknown >= scores.size()) id.refuse(fmt::format("an id below {}", scores.size()));
  }
  return std::make_unique<Unigram>(std::move(vocabulary),
                                   std::move(scores),
                                   unknown,
                                   node.flag_or("byte_fallback", false),
                                   node.name());
}

}  // namespace lockstep::tokenizer
