#include "runtime/tokenizer/tiktoken.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/text.h"
#include "runtime/tokenizer/make_tokenizer.h"
#include "runtime/tokenizer/pre_tokenizer.h"
#include "runtime/tokenizer/split_rules.h"

namespace lockstep::tokenizer {
namespace {

using SpecialToken = std::pair<std::string, uint32_t>;

std::vector<SpecialToken> one(const char* text, uint32_t id) { return {{text, id}}; }

std::vector<SpecialToken> cl100k_tokens() {
  return {{"<|endoftext|>", 100257},
          {"<|fim_prefix|>", 100258},
          {"<|fim_middle|>", 100259},
          {"<|fim_suffix|>", 100260},
          {"<|endofprompt|>", 100276}};
}

std::vector<SpecialToken> o200k_tokens() {
  return {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}};
}

// Numbered tokens: "<|reserved_special_token_7|>".
void add_numbered(std::vector<SpecialToken>& tokens,
                  const char* stem,
                  uint32_t number,
                  uint32_t begin,
                  uint32_t end) {
  for (uint32_t id = begin; id < end; ++id)
    tokens.push_back({fmt::format("<|{}_{}|>", stem, number++), id});
}

// The names of Llama 3.1 and later. Llama 3 has the same ids, and reserved tokens in place of some.
std::vector<SpecialToken> llama3_tokens() {
  std::vector<SpecialToken> tokens = {{"<|begin_of_text|>", 128000},
                                      {"<|end_of_text|>", 128001},
                                      {"<|reserved_special_token_0|>", 128002},
                                      {"<|reserved_special_token_1|>", 128003},
                                      {"<|finetune_right_pad_id|>", 128004},
                                      {"<|reserved_special_token_2|>", 128005},
                                      {"<|start_header_id|>", 128006},
                                      {"<|end_header_id|>", 128007},
                                      {"<|eom_id|>", 128008},
                                      {"<|eot_id|>", 128009},
                                      {"<|python_tag|>", 128010}};
  add_numbered(tokens, "reserved_special_token", 3, 128011, 128256);
  return tokens;
}

std::vector<SpecialToken> qwen_tokens() {
  std::vector<SpecialToken> tokens = {
      {"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}};
  add_numbered(tokens, "extra", 0, 151646, 151851);
  return tokens;
}

// A known encoding, which its number of ranks identifies.
struct Encoding {
  const char* name;
  size_t ranks;
  std::string_view (*regex)();
  std::vector<SpecialToken> (*special)();
  const char* begin = "";  // the token before each text
  bool composes = false;   // texts are brought to NFC
};

constexpr std::array kEncodings = {
    Encoding{"r50k_base (GPT-2)", 50256, gpt2_regex, [] { return one("<|endoftext|>", 50256); }},
    Encoding{"p50k_base", 50280, gpt2_regex, [] { return one("<|endoftext|>", 50256); }},
    Encoding{"cl100k_base (GPT-4)", 100256, cl100k_regex, cl100k_tokens},
    Encoding{"Llama 3", 128000, llama3_regex, llama3_tokens, "<|begin_of_text|>"},
    Encoding{"Qwen", 151643, qwen2_regex, qwen_tokens, "", true},
    Encoding{"o200k_base (GPT-4o)", 199998, o200k_regex, o200k_tokens},
};

// The value of a character of base64; -1 for others.
int value_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;  // of bits that are not taken yet
  for (const char c : text) {
    const int value = value_of(c);
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

struct RankedToken {
  std::string bytes;
  uint32_t rank;
};

std::optional<RankedToken> parse_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  auto bytes = decode_base64(line.substr(0, space));
  const auto rank = parse_as<uint32_t>(trimmed(line.substr(space + 1)));
  if (!bytes || !rank) return std::nullopt;
  return RankedToken{std::move(*bytes), *rank};
}

// The tokens, each byte as the character that represents it in a byte-level vocabulary.
Vocabulary read_ranks(std::string_view text, const std::string& name) {
  Vocabulary tokens;
  size_t single = 0;  // tokens of one byte
  size_t found = 0;
  Lines lines(text);
  for (std::string_view line; lines.next(&line);) {
    if (trimmed(line).empty()) continue;
    const auto token = parse_line(line);
    if (!token)
      throw DataError("{}:{}: the line is '{}'; allowed: a token in base64, a space and its rank",
                      name,
                      lines.number(),
                      line.substr(0, 100));
    std::string shown;
    for (const char byte : token->bytes) shown += byte_level_chars()[static_cast<uint8_t>(byte)];
    tokens.add(shown, token->rank);
    ++found;
    if (token->bytes.size() == 1) ++single;
    if (tokens.size() != found)
      throw DataError("{}:{}: the token occurs twice", name, lines.number());
  }
  if (single != 256)
    throw DataError("{}: has {} tokens of one byte; a whole file has all 256", name, single);
  return tokens;
}

const Encoding& encoding_with(size_t ranks, const std::string& name) {
  std::string known;
  for (const Encoding& encoding : kEncodings) {
    if (encoding.ranks == ranks) return encoding;
    append_item(known, fmt::format("{} ({})", encoding.ranks, encoding.name));
  }
  throw DataError(
      "{}: has {} ranks, without the rule that splits texts and special tokens, which such files "
      "lack; known by the number of ranks: {}; for others, write a tokenizer.json with "
      "transformers: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
      name,
      ranks,
      known);
}

Json parts_of(const Encoding& encoding) {
  Json added = Json::array();
  uint32_t begin = 0;
  for (const auto& [text, id] : encoding.special()) {
    added.push_back(
        Json::object({{"id", Json(id)}, {"content", Json(text)}, {"special", Json(true)}}));
    if (text == encoding.begin) begin = id;
  }
  const Json split = Json::object({{"type", "Split"},
                                   {"pattern", Json::object({{"Regex", Json(encoding.regex())}})},
                                   {"behavior", "Isolated"}});
  const Json bytes = Json::object(
      {{"type", "ByteLevel"}, {"add_prefix_space", Json(false)}, {"use_regex", Json(false)}});
  Json parts = Json::object(
      {{"added_tokens", added},
       {"pre_tokenizer",
        Json::object({{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}})},
       {"decoder", Json::object({{"type", "ByteLevel"}})}});
  if (encoding.composes) parts["normalizer"] = Json::object({{"type", "NFC"}});
  if (begin == 0) return parts;
  const auto special = [&](int segment) {
    return Json::object(
        {{"SpecialToken",
          Json::object({{"id", Json(encoding.begin)}, {"type_id", Json(segment)}})}});
  };
  const auto sequence = [](const char* id, int segment) {
    return Json::object(
        {{"Sequence", Json::object({{"id", Json(id)}, {"type_id", Json(segment)}})}});
  };
  parts["post_processor"] = Json::object(
      {{"type", "TemplateProcessing"},
       {"single", Json::array({special(0), sequence("A", 0)})},
       {"pair", Json::array({special(0), sequence("A", 0), special(1), sequence("B", 1)})},
       {"special_tokens",
        Json::object({{encoding.begin,
                       Json::object({{"id", Json(encoding.begin)},
                                     {"ids", Json::array({Json(begin)})}})}})}});
  return parts;
}

}  // namespace

bool is_tiktoken(std::string_view bytes) {
  const std::string_view first = bytes.substr(0, bytes.find('\n'));
  return first.size() < bytes.size() && parse_line(first).has_value();
}

std::unique_ptr<const Tokenizer> parse_tiktoken(std::string_view bytes, const std::string& name) {
  Vocabulary tokens = read_ranks(bytes, name);
  const Encoding& encoding = encoding_with(tokens.size(), name);
  return make_tokenizer(
      parts_of(encoding), name, make_ranked_bpe(std::move(tokens), encoding.special()));
}

}  // namespace lockstep::tokenizer
