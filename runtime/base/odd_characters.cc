#include "runtime/base/odd_characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <string_view>

namespace lockstep {
namespace {

// Characters from `first` to `last`: what they are, and the ASCII text to write instead. An empty
// text means that the character should be removed.
struct OddRange {
  char32_t first, last;
  std::string_view name, instead;
};

constexpr std::string_view kQuote = "a curly quote";
constexpr std::string_view kSpace = "a wide or narrow space";
constexpr std::string_view kNothing = "an invisible character";
constexpr std::string_view kDash = "a long dash";

constexpr OddRange kRanges[] = {
    {0x0085, 0x0085, "a line end of other systems", " "},
    {0x00A0, 0x00A0, "a no-break space", " "},
    {0x00AB, 0x00AB, kQuote, "\""},
    {0x00AD, 0x00AD, "a soft hyphen, which is invisible", ""},
    {0x00B4, 0x00B4, "an accent", "'"},
    {0x00BB, 0x00BB, kQuote, "\""},
    {0x00D7, 0x00D7, "a multiplication sign", "*"},
    {0x037E, 0x037E, "a Greek question mark", ";"},
    {0x1680, 0x1680, kSpace, " "},
    {0x180E, 0x180E, kNothing, ""},
    {0x2000, 0x200A, kSpace, " "},
    {0x200B, 0x200F, kNothing, ""},
    {0x2010, 0x2015, kDash, "-"},
    {0x2018, 0x201B, kQuote, "'"},
    {0x201C, 0x201F, kQuote, "\""},
    {0x2026, 0x2026, "an ellipsis", "..."},
    {0x2028, 0x2029, "a line or paragraph separator", " "},
    {0x202A, 0x202E, kNothing, ""},
    {0x202F, 0x202F, "a narrow no-break space", " "},
    {0x2032, 0x2032, "a prime", "'"},
    {0x2033, 0x2033, "a double prime", "\""},
    {0x2039, 0x203A, kQuote, "'"},
    {0x2044, 0x2044, "a fraction slash", "/"},
    {0x205F, 0x205F, kSpace, " "},
    {0x2060, 0x2064, kNothing, ""},
    {0x2066, 0x2069, kNothing, ""},
    {0x2212, 0x2212, "a minus sign of typography", "-"},
    {0x2236, 0x2236, "a ratio sign", ":"},
    {0x3000, 0x3000, kSpace, " "},
    {0x3001, 0x3001, "an ideographic comma", ","},
    {0x3002, 0x3002, "an ideographic full stop", "."},
    {0x300C, 0x300F, kQuote, "\""},
    {0x301D, 0x301F, kQuote, "\""},
    {0xFE55, 0xFE55, "a small colon", ":"},
    {0xFE58, 0xFE58, kDash, "-"},
    {0xFE63, 0xFE63, kDash, "-"},
    {0xFEFF, 0xFEFF, "a byte order mark, which is invisible", ""},
};

// Letters of other alphabets, in the order of kLatin.
constexpr std::u32string_view kCyrillic = U"асеорхуіјѕһԁԛԝАВЕКМНОРСТХІЈЅԌ";
constexpr std::string_view kLikeCyrillic = "aceopxyijshdqwABEKMHOPCTXIJSG";
constexpr std::u32string_view kGreek = U"ονιαυρΑΒΕΖΗΙΚΜΝΟΡΤΥΧ";
constexpr std::string_view kLikeGreek = "oviaupABEZHIKMNOPTYX";
static_assert(kCyrillic.size() == kLikeCyrillic.size() && kGreek.size() == kLikeGreek.size());

struct Character {
  char32_t code = 0;
  size_t length = 0;  // 0: not UTF-8
};

Character character_at(std::string_view text, size_t at) {
  utf8proc_int32_t code = 0;
  const utf8proc_ssize_t length =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                       static_cast<utf8proc_ssize_t>(text.size() - at),
                       &code);
  if (length <= 0) return {};
  return {static_cast<char32_t>(code), static_cast<size_t>(length)};
}

const OddRange* range_of(char32_t code) {
  const auto* found = std::find_if(std::begin(kRanges), std::end(kRanges), [&](const auto& range) {
    return code >= range.first && code <= range.last;
  });
  return found == std::end(kRanges) ? nullptr : found;
}

std::string instead_of(std::string_view ascii) {
  if (ascii.empty()) return "remove it";
  return ascii == " " ? "write a plain space instead" : fmt::format("write {} instead", ascii);
}

}  // namespace

size_t find_non_ascii(std::string_view text, size_t from) {
  from = std::min(from, text.size());
  const auto* found = std::find_if(text.begin() + from, text.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x80;
  });
  return found == text.end() ? std::string_view::npos : static_cast<size_t>(found - text.begin());
}

std::string describe_odd_character(std::string_view text, size_t at) {
  const auto [code, length] = character_at(text, at);
  if (length == 0)
    return fmt::format("the byte 0x{:02X} is not UTF-8; save the file as UTF-8",
                       static_cast<unsigned char>(text[at]));
  const std::string number = fmt::format("U+{:04X}", static_cast<uint32_t>(code));
  const std::string shown = fmt::format("'{}' ({})", text.substr(at, length), number);
  if (const OddRange* range = range_of(code); range != nullptr) {
    const bool visible = range->instead != " " && !range->instead.empty();
    return fmt::format(
        "{} is {}; {}", visible ? shown : number, range->name, instead_of(range->instead));
  }
  if (code >= 0xFF01 && code <= 0xFF5E) {
    const char ascii = static_cast<char>(code - 0xFF01 + '!');
    return fmt::format("{} is a full-width character; write {} instead", shown, ascii);
  }
  if (const size_t i = kCyrillic.find(code); i != std::u32string_view::npos)
    return fmt::format("{} is a Cyrillic letter that looks like {}; write {} instead",
                       shown,
                       kLikeCyrillic[i],
                       kLikeCyrillic[i]);
  if (const size_t i = kGreek.find(code); i != std::u32string_view::npos)
    return fmt::format("{} is a Greek letter that looks like {}; write {} instead",
                       shown,
                       kLikeGreek[i],
                       kLikeGreek[i]);
  return fmt::format("{} is not ASCII; other characters are allowed in quotes only", shown);
}

bool is_odd_blank(std::string_view text, size_t at) {
  const OddRange* range = range_of(character_at(text, at).code);
  return range != nullptr && range->instead == " ";
}

bool is_odd_quote(std::string_view text, size_t at) {
  const OddRange* range = range_of(character_at(text, at).code);
  return range != nullptr && range->name == kQuote;
}

}  // namespace lockstep
