#include "runtime/chat/lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "runtime/tokenizer/unicode.h"

namespace lockstep::chat {
namespace {

bool is_space(uint32_t code) {
  if ((code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20)) return true;
  if (code < 0x80) return false;
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool in_name(char c) { return begins_name(c) || is_digit(c); }

// Longer operators come first.
constexpr std::array<std::string_view, 30> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "~", "%", "[", "]", "(",
    ")",  "{",  "}",  ">",  "<",  "=",  ".", ":", "|", ",", ";", "!", "?", "&", "@"};

// Converts all newlines to
//  and removes the last one.
std::string with_plain_newlines(std::string_view source) {
  std::string plain;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      plain += source[i];
      continue;
    }
    plain += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (plain.ends_with('\n')) plain.pop_back();
  return plain;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = next_tag();
      text(tag);
      if (tag == source_.size()) break;
      switch (source_[tag + 1]) {
        case '#': comment(); break;
        case '%': block(); break;
        default: this->tag(Token::Kind::kOutputBegin, Token::Kind::kOutputEnd, "}}"); break;
      }
    }
    add(Token::Kind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  void add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
  }
  [[noreturn]] void fail(std::string text) const { throw SyntaxProblem{std::move(text), line_}; }

  // Advances to position `to` and counts lines.
  void pass(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to),
                                         '\n'));
    at_ = to;
  }
  bool has(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }

  size_t next_tag() const {
    for (size_t i = source_.find('{', at_); i < source_.size(); i = source_.find('{', i + 1))
      if (i + 1 < source_.size() &&
          (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#'))
        return i;
    return source_.size();
  }

  // Adds the text before a tag, without the white space that the tag removes.
  void text(size_t tag) {
    const std::string_view before_tag = std::string_view(source_).substr(at_, tag - at_);
    std::string_view kept = before_tag;
    if (tag < source_.size()) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
      if (sign == '-') {
        kept.remove_suffix(trailing_space(kept));
      } else if (sign != '+' && source_[tag + 1] != '{') {
        const size_t newline = before_tag.rfind('\n');
        const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
        const std::string_view blanks = before_tag.substr(line_begin);
        if ((line_begin > 0 || after_newline_) && leading_space(blanks) == blanks.size())
          kept = before_tag.substr(0, line_begin);
      }
    }
    if (!kept.empty()) add(Token::Kind::kText, std::string(kept));
    pass(tag);
  }

  // Handles white space after a tag. `sign` is the character before the tag's closing mark.
  void after_tag(char sign, bool takes_newline) {
    const size_t begin = at_;
    if (sign == '-') {
      pass(at_ + leading_space(std::string_view(source_).substr(at_)));
    } else if (takes_newline && sign != '+' && at_ < source_.size() && source_[at_] == '\n') {
      pass(at_ + 1);
    }
    after_newline_ = at_ > begin && source_[at_ - 1] == '\n';
  }

  void comment() {
    const bool begins_signed =
        at_ + 2 < source_.size() && (source_[at_ + 2] == '-' || source_[at_ + 2] == '+');
    const size_t begin = at_ + (begins_signed ? 3 : 2), end = source_.find("#}", begin);
    if (end == std::string::npos) fail("a comment without #}");
    const char sign = end > begin ? source_[end - 1] : ' ';
    pass(end + 2);
    after_tag(sign, true);
  }

  void block() {
    const int line = line_;
    const size_t first = tokens_.size();
    tag(Token::Kind::kBlockBegin, Token::Kind::kBlockEnd, "%}");
    if (tokens_.size() == first + 3 && tokens_[first + 1].text == "raw" &&
        tokens_[first + 1].kind == Token::Kind::kName)
      throw SyntaxProblem{"the tag raw is not supported", line};
  }

  // Reads a tag up to its closing mark, which does not count inside brackets.
  void tag(Token::Kind begin, Token::Kind end, std::string_view closing) {
    add(begin, {});
    pass(at_ + 2);
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) pass(at_ + 1);
    std::string brackets;
    while (true) {
      while (at_ < source_.size() && is_space(static_cast<unsigned char>(source_[at_])))
        pass(at_ + 1);
      if (at_ >= source_.size()) fail(fmt::format("a tag without {}", closing));
      if (brackets.empty()) {
        const char sign = source_[at_];
        const bool signed_end =
            (sign == '-' || (sign == '+' && begin == Token::Kind::kBlockBegin)) &&
            std::string_view(source_).substr(at_ + 1).starts_with(closing);
        if (signed_end || has(closing)) {
          add(end, {});
          pass(at_ + (signed_end ? 3 : 2));
          after_tag(signed_end ? sign : ' ', begin == Token::Kind::kBlockBegin);
          return;
        }
      }
      word(&brackets);
    }
  }

  void word(std::string* brackets) {
    const char c = source_[at_];
    if (begins_name(c)) {
      size_t end = at_;
      while (end < source_.size() && in_name(source_[end])) ++end;
      add(Token::Kind::kName, source_.substr(at_, end - at_));
      return pass(end);
    }
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return string(c);
    for (const std::string_view sign : kOperators) {
      if (!has(sign)) continue;
      bracket(c, brackets);
      add(Token::Kind::kOperator, std::string(sign));
      return pass(at_ + sign.size());
    }
    const tokenizer::DecodedChar character = tokenizer::decode_char(&source_[at_]);
    fail(fmt::format("'{}' in a tag", source_.substr(at_, character.bytes)));
  }

  void bracket(char c, std::string* brackets) const {
    if (c == '(' || c == '[' || c == '{') *brackets += c;
    if (c != ')' && c != ']' && c != '}') return;
    const char opening = c == ')' ? '(' : c == ']' ? '[' : '{';
    if (!brackets->ends_with(opening)) fail(fmt::format("'{}' without '{}'", c, opening));
    brackets->pop_back();
  }

  void number() {
    size_t end = at_;
    const auto digits = [&] {
      while (end < source_.size() && is_digit(source_[end])) ++end;
    };
    const auto digit_at = [&](size_t i) { return i < source_.size() && is_digit(source_[i]); };
    digits();
    bool is_integer = true;
    if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      is_integer = false;
      ++end;
      digits();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t sign =
          end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
      if (digit_at(end + 1 + sign)) {
        is_integer = false;
        end += 1 + sign;
        digits();
      }
    }
    if (end < source_.size() && in_name(source_[end])) fail("a number with letters");
    add(is_integer ? Token::Kind::kInteger : Token::Kind::kNumber, source_.substr(at_, end - at_));
    pass(end);
  }

  void string(char mark) {
    std::string text;
    size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != mark) {
      if (source_[i] != '\\') {
        text += source_[i++];
        continue;
      }
      if (i + 1 >= source_.size()) break;
      i = escape(i + 1, &text);
    }
    if (i >= source_.size()) fail("a string without its closing quotation mark");
    add(Token::Kind::kString, std::move(text));
    pass(i + 1);
  }

  // Appends the character of an escape; `i` is the position after the backslash. Returns the
  // position after the escape.
  size_t escape(size_t i, std::string* text) const {
    const char c = source_[i];
    switch (c) {
      case '\n': return i + 1;
      case '\\':
      case '\'':
      case '"': *text += c; return i + 1;
      case 'n': *text += '\n'; return i + 1;
      case 't': *text += '\t'; return i + 1;
      case 'r': *text += '\r'; return i + 1;
      case 'b': *text += '\b'; return i + 1;
      case 'f': *text += '\f'; return i + 1;
      case 'v': *text += '\v'; return i + 1;
      case 'a': *text += '\a'; return i + 1;
      case 'x': return coded(i, 2, text);
      case 'u': return coded(i, 4, text);
      case 'U': return coded(i, 8, text);
      default: break;
    }
    if (is_digit(c) || c == 'N') fail(fmt::format("the escape \\{} in a text is not supported", c));
    *text += '\\';
    return i;
  }

  size_t coded(size_t i, size_t digits, std::string* text) const {
    uint32_t code = 0;
    for (size_t k = 1; k <= digits; ++k) {
      const char c = i + k < source_.size() ? source_[i + k] : ' ';
      const bool letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!is_digit(c) && !letter) fail("an incomplete escape in a string");
      code = code * 16 + static_cast<uint32_t>(is_digit(c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
      fail("an escape that is not a character");
    tokenizer::append_char(text, code);
    return i + 1 + digits;
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool after_newline_ = true;  // whether a line begins here, for lstrip_blocks
  std::vector<Token> tokens_;
};

}  // namespace

size_t leading_space(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const tokenizer::DecodedChar c = tokenizer::decode_char(&text[i]);
    if (!is_space(c.code)) break;
    i += c.bytes;
  }
  return i;
}

size_t trailing_space(std::string_view text) {
  const size_t size = text.size();
  while (!text.empty()) {
    const size_t begin = tokenizer::last_char_begin(text);
    if (!is_space(tokenizer::decode_char(&text[begin]).code)) break;
    text = text.substr(0, begin);
  }
  return size - text.size();
}

std::vector<Token> tokenize_template(std::string_view source) {
  return Lexer(with_plain_newlines(source)).run();
}

}  // namespace lockstep::chat
