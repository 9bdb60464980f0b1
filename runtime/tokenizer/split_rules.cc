#include "runtime/tokenizer/split_rules.h"

#include <array>
#include <cstdint>

#include "runtime/base/text.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
// That of tiktoken's cl100k_base, in which white space at the end of a text is one word.
constexpr std::string_view kCl100k =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+)"
    R"(|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// For these rules a character is a letter, a number, a space or other.
constexpr uint16_t kKinds = kLetter | kNumber | kSpace;
constexpr uint16_t kOther = 0;

struct Char {
  uint16_t kind;
  uint32_t bytes;  // 0: the text has ended
};

class Scanner {
 public:
  explicit Scanner(std::string_view text)
      : end_(text.data() + text.size()), classes_(char_class_table()) {}

  bool at_end(const char* p) const { return p == end_; }

  Char at(const char* p) const {
    if (p == end_) return {kKinds, 0};  // no kind
    const auto first = static_cast<uint8_t>(*p);
    if (first < 0x80) return {static_cast<uint16_t>(classes_[first] & kKinds), 1};
    const DecodedChar c = decode_char(p);
    return {static_cast<uint16_t>(classes_[c.code] & kKinds), c.bytes};
  }

  // Whether the character at p has one of the classes `wanted`.
  bool is(const char* p, uint16_t wanted) const {
    return p != end_ && (classes_[decode_char(p).code] & wanted) != 0;
  }

  // Skips all characters that have one of the classes `wanted`.
  const char* skip_classes(const char* p, uint16_t wanted) const {
    while (is(p, wanted)) p += decode_char(p).bytes;
    return p;
  }

  // Skips all characters of a kind, starting at p.
  const char* skip(const char* p, uint16_t kind) const {
    for (Char c = at(p); c.bytes > 0 && c.kind == kind; c = at(p)) p += c.bytes;
    return p;
  }

  // Skips at most `max_numbers` number characters.
  const char* skip_numbers(const char* p, int max_numbers) const {
    for (Char c = at(p); max_numbers > 0 && c.bytes > 0 && c.kind == kNumber; c = at(p)) {
      p += c.bytes;
      --max_numbers;
    }
    return p;
  }

  const char* skip_newlines(const char* p) const {
    while (p < end_ && (*p == '\r' || *p == '\n')) ++p;
    return p;
  }

  // The end of \s+(?!\S)|\s+ from p, which is at a space. If several spaces precede something else,
  // the last one is left to it.
  const char* skip_spaces(const char* p) const {
    const char* last = p;
    const char* after = p;
    for (Char c = at(p); c.bytes > 0 && c.kind == kSpace; c = at(after)) {
      last = after;
      after += c.bytes;
    }
    return after == end_ || last == p ? after : last;
  }

  // The end of \s*[\r
  // ]+ from p, or p if it does not match: everything up to the last line break in this run of
  // spaces.
  const char* skip_to_newline(const char* p) const {
    const char* found = p;
    for (Char c = at(p); c.bytes > 0 && c.kind == kSpace; c = at(p)) {
      p += c.bytes;
      if (c.bytes == 1 && (p[-1] == '\n' || p[-1] == '\r')) found = p;
    }
    return found;
  }

  // The end of 's|'t|'re|'ve|'m|'ll|'d from p, which is at an apostrophe; p if it does not match.
  // With `any_case` it also matches capitals and the long s (U+017F), which a case-insensitive
  // regex treats as an s.
  const char* skip_contraction(const char* p, bool any_case) const {
    const auto letter = [&](int i) {
      if (end_ - p <= i) return '\0';
      const char c = p[i];
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    const char first = letter(1), second = letter(2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return p + 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
        (first == 'l' && second == 'l'))
      return p + 3;
    if (any_case && first == '\xC5' && second == '\xBF') return p + 3;  // U+017F
    return p;
  }

 private:
  const char* end_;
  const uint16_t* classes_;
};

const char* gpt2_word(const Scanner& text, const char* p) {
  if (*p == '\'') {
    const char* end = text.skip_contraction(p, false);
    if (end != p) return end;
  }
  const char* word = *p == ' ' ? p + 1 : p;
  const Char c = text.at(word);
  if (c.bytes > 0 && c.kind != kSpace) return text.skip(word + c.bytes, c.kind);
  return text.skip_spaces(p);
}

template <int kMaxNumbers, bool kWholeEnd>
const char* llama3_word(const Scanner& text, const char* p) {
  if (*p == '\'') {
    const char* end = text.skip_contraction(p, true);
    if (end != p) return end;
  }
  const Char c = text.at(p);
  if (c.kind == kLetter) return text.skip(p + c.bytes, kLetter);
  if (c.kind == kNumber) return text.skip_numbers(p, kMaxNumbers);
  if (*p != '\r' && *p != '\n' && text.at(p + c.bytes).kind == kLetter)
    return text.skip(p + c.bytes, kLetter);
  const char* word = *p == ' ' ? p + 1 : p;
  if (const Char first = text.at(word); first.bytes > 0 && first.kind == kOther)
    return text.skip_newlines(text.skip(word, kOther));
  if (kWholeEnd)
    if (const char* end = text.skip(p, kSpace); text.at_end(end)) return end;
  const char* lines = text.skip_to_newline(p);
  return lines != p ? lines : text.skip_spaces(p);
}

// The end of U*L+ from p, or p if it does not match. U is a capital, mark or caseless letter; L is
// a small letter, mark or caseless letter. If no L follows the run of U, the last U in it that is
// also an L ends the match.
const char* skip_to_small(const Scanner& text, const char* p) {
  const char* found = p;
  const char* q = p;
  for (; text.is(q, kUpperOrMark); q += decode_char(q).bytes)
    if (text.is(q, kLowerOrMark)) found = q + decode_char(q).bytes;
  return text.is(q, kLowerOrMark) ? text.skip_classes(q, kLowerOrMark) : found;
}

// The end of U+L* from p, or p if it does not match.
const char* skip_from_capital(const Scanner& text, const char* p) {
  const char* q = text.skip_classes(p, kUpperOrMark);
  return q == p ? p : text.skip_classes(q, kLowerOrMark);
}

// Tries U*L+ and then U+L*, each first with and then without one character before the word that is
// no letter, number or line break. Returns p if there is no word.
const char* skip_cased_word(const Scanner& text, const char* p) {
  const Char c = text.at(p);
  const bool may_precede = c.kind != kLetter && c.kind != kNumber && *p != '\r' && *p != '\n';
  for (const auto skip : {skip_to_small, skip_from_capital}) {
    if (may_precede) {
      const char* word = p + c.bytes;
      if (const char* end = skip(text, word); end != word) return end;
    }
    if (const char* end = skip(text, p); end != p) return end;
  }
  return p;
}

template <int kMaxNumbers, bool kContractions>
const char* o200k_word(const Scanner& text, const char* p) {
  if (const char* end = skip_cased_word(text, p); end != p)
    return kContractions && !text.at_end(end) && *end == '\'' ? text.skip_contraction(end, true)
                                                              : end;
  if (text.at(p).kind == kNumber) return text.skip_numbers(p, kMaxNumbers);
  const char* word = *p == ' ' ? p + 1 : p;
  if (const Char first = text.at(word); first.bytes > 0 && first.kind == kOther) {
    const char* end = text.skip(word, kOther);
    while (!text.at_end(end) && (*end == '\r' || *end == '\n' || *end == '/')) ++end;
    return end;
  }
  const char* lines = text.skip_to_newline(p);
  return lines != p ? lines : text.skip_spaces(p);
}

template <const char* (*kWord)(const Scanner&, const char*)>
void split_by(TextPiece piece, PieceSink& next) {
  const Scanner text(piece.text);
  for (const char* p = piece.text.data(); !text.at_end(p);) {
    const char* end = kWord(text, p);
    next.take({{p, static_cast<size_t>(end - p)}, piece.at_start && p == piece.text.data()});
    p = end;
  }
}

struct KnownRule {
  std::string_view name, regex;
  SplitRule rule;
};

constexpr std::array kKnownRules{
    KnownRule{"GPT-2", kGpt2, split_by<gpt2_word>},
    KnownRule{"cl100k (Llama 3)", kLlama3, split_by<llama3_word<3, false>>},
    KnownRule{"cl100k (tiktoken)", kCl100k, split_by<llama3_word<3, true>>},
    KnownRule{"Qwen2", kQwen2, split_by<llama3_word<1, false>>},
    KnownRule{"o200k (GPT-4o, Llama 4)", kO200k, split_by<o200k_word<3, true>>},
    KnownRule{"Tekken (Mistral)", kTekken, split_by<o200k_word<1, false>>},
};

}  // namespace

std::string_view gpt2_regex() { return kGpt2; }
std::string_view cl100k_regex() { return kCl100k; }
std::string_view llama3_regex() { return kLlama3; }
std::string_view qwen2_regex() { return kQwen2; }
std::string_view o200k_regex() { return kO200k; }

void split_as_gpt2(TextPiece piece, PieceSink& next) { split_by<gpt2_word>(piece, next); }

SplitRule split_rule_of(std::string_view regex) {
  for (const KnownRule& known : kKnownRules)
    if (known.regex == regex) return known.rule;
  return nullptr;
}

std::string known_split_rules() {
  std::string names;
  for (const KnownRule& known : kKnownRules) append_item(names, known.name);
  return names;
}

}  // namespace lockstep::tokenizer
