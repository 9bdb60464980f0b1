// BERT's vocab.txt: converted to the tokenizer.json that matches Hugging Face's BertTokenizer.
#include <algorithm>
#include <array>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/text.h"
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

constexpr uint32_t kMaxWordChars = 100;

struct SpecialToken {
  const char* text;
  bool needed;
};
constexpr std::array<SpecialToken, 5> kSpecial = {
    {{"[PAD]", false}, {"[UNK]", true}, {"[CLS]", true}, {"[SEP]", true}, {"[MASK]", false}}};

// The lines, without white space at their ends.
std::vector<std::string_view> tokens_of(std::string_view text) {
  std::vector<std::string_view> tokens;
  Lines lines(text);
  for (std::string_view line; lines.next(&line);)
    tokens.push_back(line.substr(0, line.find_last_not_of(" \t") + 1));
  return tokens;
}

bool is_special(std::string_view token) { return token.starts_with('[') && token.ends_with(']'); }

bool has_capitals(const std::vector<std::string_view>& tokens) {
  for (const std::string_view token : tokens)
    if (!is_special(token))
      for (const char c : token)
        if (c >= 'A' && c <= 'Z') return true;
  return false;
}

// ["[CLS]", 101]
Json token_and_id(const char* token, uint32_t id) { return Json::array({token, id}); }

}  // namespace

std::unique_ptr<const Tokenizer> parse_bert_vocabulary(std::string_view text,
                                                       const std::string& name,
                                                       const BertVocabularyOptions& options) {
  if (valid_utf8_bytes(text) != text.size())
    throw DataError("{}: is not UTF-8; a vocab.txt of BERT has a token on each line", name);
  const std::vector<std::string_view> tokens = tokens_of(text);
  // The object is written as text, because members of a Json are searched linearly. If a token
  // occurs twice, its last id counts, both in the parser and here.
  std::string vocabulary = "{";
  for (size_t id = 0; id < tokens.size(); ++id)
    vocabulary.append(id > 0 ? "," : "")
        .append(Json(tokens[id]).dump())
        .append(":")
        .append(std::to_string(id));
  vocabulary += "}";
  std::array<uint32_t, kSpecial.size()> ids{};
  Json added = Json::array();
  for (size_t i = 0; i < kSpecial.size(); ++i) {
    const auto& [special, needed] = kSpecial[i];
    const auto found = std::find(tokens.rbegin(), tokens.rend(), special);
    if (found == tokens.rend()) {
      if (needed) throw DataError("{}: has no line {}; a vocab.txt of BERT has one", name, special);
      continue;
    }
    ids[i] = static_cast<uint32_t>(tokens.rend() - found) - 1;
    added.push_back(Json::object(
        {{"id", ids[i]}, {"content", special}, {"special", true}, {"normalized", false}}));
  }
  const bool lower = options.lower_case.value_or(!has_capitals(tokens));
  const Json normalizer = Json::object({{"type", "BertNormalizer"},
                                        {"clean_text", true},
                                        {"handle_chinese_chars", options.split_chinese},
                                        {"strip_accents", options.strip_accents.value_or(lower)},
                                        {"lowercase", lower}});
  const Json post_processor = Json::object({{"type", "BertProcessing"},
                                            {"cls", token_and_id(kSpecial[2].text, ids[2])},
                                            {"sep", token_and_id(kSpecial[3].text, ids[3])}});
  return parse_tokenizer_json(
      fmt::format(
          R"({{"added_tokens":{},"normalizer":{},"pre_tokenizer":{{"type":"BertPreTokenizer"}},)"
          R"("post_processor":{},"decoder":{{"type":"WordPiece","prefix":"##","cleanup":true}},)"
          R"("model":{{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##",)"
          R"("max_input_chars_per_word":{},"vocab":{}}}}})",
          added.dump(),
          normalizer.dump(),
          post_processor.dump(),
          kMaxWordChars,
          vocabulary),
      name);
}

}  // namespace lockstep::tokenizer
