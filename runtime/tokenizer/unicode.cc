#include "runtime/tokenizer/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/tokenizer/unicode_corrections.h"

namespace lockstep::tokenizer {
namespace {

constexpr uint32_t kCodePoints = 0x110000;
constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

uint16_t classes_of_category(utf8proc_category_t category) {
  switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return kLetter | kWord | kUpperOrMark;
    case UTF8PROC_CATEGORY_LL: return kLetter | kWord | kLowerOrMark;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return kLetter | kWord | kUpperOrMark | kLowerOrMark;
    case UTF8PROC_CATEGORY_MN: return kNonspacing | kMark | kWord | kUpperOrMark | kLowerOrMark;
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return kMark | kWord | kUpperOrMark | kLowerOrMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL: return kNumber | kNumeric | kWord;
    case UTF8PROC_CATEGORY_NO: return kNumber | kNumeric;
    case UTF8PROC_CATEGORY_PC: return kPunctuation | kWord;
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return kPunctuation;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO: return kControl;
    default: return 0;
  }
}

std::vector<uint16_t> make_classes() {
  std::vector<uint16_t> classes(kCodePoints);
  for (uint32_t c = 0; c < kCodePoints; ++c)
    classes[c] = classes_of_category(utf8proc_category(static_cast<utf8proc_int32_t>(c)));
  const auto add = [&classes](uint32_t first, uint32_t last, uint16_t bits) {
    for (uint32_t c = first; c <= last; ++c) classes[c] |= bits;
  };
  add(0x09, 0x0D, kSpace);
  for (const uint32_t c : {0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000})
    add(c, c, kSpace);
  add(0x2000, 0x200A, kSpace);
  for (const char c : std::string_view("$+<=>^`|~"))
    classes[static_cast<size_t>(c)] |= kPunctuation;
  // Circled and squared letters, and the two joiners.
  add(0x24B6, 0x24E9, kWord);
  add(0x1F130, 0x1F149, kWord);
  add(0x1F150, 0x1F169, kWord);
  add(0x1F170, 0x1F189, kWord);
  add(0x200C, 0x200D, kWord);
  // The code point just before the final Hangul consonants. utf8proc would compose it with a
  // syllable and lose it.
  add(0x11A7, 0x11A7, kInert);
  for (const char c : {'\t', '\n', '\r'}) classes[static_cast<size_t>(c)] &= ~kControl;
  for (const CorrectedClass& range : kCorrectedClasses)
    for (uint32_t c = range.first; c <= range.last; ++c) classes[c] = range.classes;
  return classes;
}

// The length of the valid character at the beginning of a text, or 0 if there is none. Then
// `*partial` is the length of the maximal part of a character there.
size_t valid_char_bytes(std::string_view text, size_t* partial) {
  const auto at = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  *partial = 1;
  const uint8_t lead = at(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Some values of the second byte would be overlong forms, surrogates or beyond U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < size; ++i) {
    if (i == text.size()) return 0;
    if (at(i) < (i == 1 ? low : 0x80) || at(i) > (i == 1 ? high : 0xBF)) return 0;
    *partial = i + 1;
  }
  return size;
}

// `text` must not have inert characters.
void append_normal_form(std::string* out, std::string_view text, NormalForm form) {
  if (text.empty()) return;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const int options = UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                      (compatible ? UTF8PROC_COMPAT : 0);
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()),
                                             &mapped,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  LOCKSTEP_CHECK(size >= 0, "utf8proc: {}", utf8proc_errmsg(size));
  out->append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

}  // namespace

const uint16_t* char_class_table() {
  static const std::vector<uint16_t> classes = make_classes();
  return classes.data();
}

void append_char(std::string* text, uint32_t code) {
  const auto tail = [code](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    text->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    text->append({static_cast<char>(0xC0 | code >> 6), tail(0)});
  } else if (code < 0x10000) {
    text->append({static_cast<char>(0xE0 | code >> 12), tail(6), tail(0)});
  } else {
    text->append({static_cast<char>(0xF0 | code >> 18), tail(12), tail(6), tail(0)});
  }
}

size_t valid_utf8_bytes(std::string_view text) {
  size_t i = 0, partial = 0;
  while (i < text.size()) {
    const size_t bytes = valid_char_bytes(text.substr(i), &partial);
    if (bytes == 0) return i;
    i += bytes;
  }
  return i;
}

void append_as_utf8(std::string* out, std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t valid = valid_utf8_bytes(bytes);
    out->append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) return;
    size_t partial = 0;
    valid_char_bytes(bytes, &partial);
    out->append(kReplacement);
    bytes.remove_prefix(partial);
  }
}

void append_lowercase(std::string* text, uint32_t code) {
  if (code == 0x130) {  // the only one whose lower case is two code points
    text->append("i\xCC\x87");
    return;
  }
  if (code >= 0x80)
    for (const CorrectedLowercase& range : kCorrectedLowercase)
      if (code >= range.first && code <= range.last)
        return append_char(text, range.lower + (code - range.first));
  append_char(text, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
}

std::string normal_form(std::string_view text, NormalForm form) {
  const uint16_t* classes = char_class_table();
  std::string out;
  out.reserve(text.size());
  size_t begin = 0;  // of the text that is not yet appended
  size_t i = 0;
  while (i < text.size()) {
    // ASCII needs no change, but its last character may be composed with the next one.
    const size_t ascii = i;
    while (i < text.size() && static_cast<uint8_t>(text[i]) < 0x80) ++i;
    if (i - ascii > 1) {
      append_normal_form(&out, text.substr(begin, ascii - begin), form);
      out.append(text.substr(ascii, i - 1 - ascii));
      begin = i - 1;
    }
    for (; i < text.size() && static_cast<uint8_t>(text[i]) >= 0x80;) {
      const DecodedChar c = decode_char(text.data() + i);
      i += c.bytes;
      if ((classes[c.code] & kInert) == 0) continue;
      append_normal_form(&out, text.substr(begin, i - c.bytes - begin), form);
      append_char(&out, c.code);
      begin = i;
    }
  }
  append_normal_form(&out, text.substr(begin), form);
  return out;
}

}  // namespace lockstep::tokenizer
