#include "runtime/tokenizer/charsmap.h"

#include <utf8proc.h>

#include <bit>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

#include "runtime/tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

constexpr size_t kGraphemeBytes = 6;  // graphemes shorter than this are looked up as a unit

// A unit of the double array has the label of the byte that leads to it, the distance to its
// children, and a flag whether one of these is a value.
bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t distance_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

class CharsmapStep final : public NormalizerStep {
 public:
  explicit CharsmapStep(Charsmap charsmap) : charsmap_(std::move(charsmap)) {}

  void apply(NormalizedText* text, GrowthLimit& limit) const override {
    const std::string_view from = text->text;
    std::string to;
    to.reserve(from.size());
    const auto append = [&](std::string_view more) {
      limit.check(to.size() + more.size());
      to.append(more);
    };
    for (size_t i = 0; i < from.size();) {
      const size_t bytes = grapheme_bytes(from.substr(i));
      const std::string_view grapheme = from.substr(i, bytes);
      i += bytes;
      if (bytes < kGraphemeBytes) {
        if (const auto replacement = charsmap_.replacement(grapheme)) {
          append(*replacement);
          continue;
        }
      }
      for (size_t at = 0; at < bytes;) {
        const std::string_view one = grapheme.substr(at, decode_char(grapheme.data() + at).bytes);
        at += one.size();
        append(charsmap_.replacement(one).value_or(one));
      }
    }
    text->text = std::move(to);
  }

 private:
  // The length of the extended grapheme cluster at the beginning of a text.
  static size_t grapheme_bytes(std::string_view text) {
    DecodedChar before = decode_char(text.data());
    size_t bytes = before.bytes;
    utf8proc_int32_t state = 0;
    while (bytes < text.size()) {
      const DecodedChar next = decode_char(text.data() + bytes);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before.code),
                                           static_cast<utf8proc_int32_t>(next.code),
                                           &state))
        break;
      bytes += next.bytes;
      before = next;
    }
    return bytes;
  }

  Charsmap charsmap_;
};

}  // namespace

Charsmap::Charsmap(std::string_view bytes) {
  static_assert(std::endian::native == std::endian::little);
  if (bytes.empty()) return;
  uint32_t trie_bytes = 0;
  if (bytes.size() < sizeof(trie_bytes)) throw std::invalid_argument("shorter than its header");
  std::memcpy(&trie_bytes, bytes.data(), sizeof(trie_bytes));
  bytes.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes > bytes.size() || trie_bytes % sizeof(uint32_t) != 0)
    throw std::invalid_argument("its trie does not fit");
  units_.resize(trie_bytes / sizeof(uint32_t));
  if (trie_bytes > 0) std::memcpy(units_.data(), bytes.data(), trie_bytes);
  texts_ = bytes.substr(trie_bytes);
  if (valid_utf8_bytes(texts_) != texts_.size()) throw std::invalid_argument("is not UTF-8");
}

Charsmap::Replacement Charsmap::find(std::string_view text, bool longest) const {
  Replacement found;
  if (units_.empty()) return found;
  size_t position = distance_of(units_[0]);
  for (size_t i = 0; i < text.size() && (longest || found.bytes == 0); ++i) {
    ++found.steps;
    const auto byte = static_cast<uint8_t>(text[i]);
    position ^= byte;
    if (byte == 0 || position >= units_.size() || label_of(units_[position]) != byte) break;
    const uint32_t unit = units_[position];
    position ^= distance_of(unit);
    if (!has_value(unit)) continue;
    if (position >= units_.size()) break;
    const size_t begin = value_of(units_[position]);
    // A replacement must begin at the beginning of a character.
    if (begin >= texts_.size() || (static_cast<uint8_t>(texts_[begin]) & 0xC0) == 0x80) break;
    const std::string_view rest = std::string_view(texts_).substr(begin);
    found = {i + 1, rest.substr(0, rest.find('\0')), found.steps};
    found.steps += found.text.size();
  }
  return found;
}

std::string decode_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    uint32_t digit = 0;
    if (c >= 'A' && c <= 'Z')
      digit = static_cast<uint32_t>(c - 'A');
    else if (c >= 'a' && c <= 'z')
      digit = static_cast<uint32_t>(c - 'a') + 26;
    else if (c >= '0' && c <= '9')
      digit = static_cast<uint32_t>(c - '0') + 52;
    else if (c == '+' || c == '/')
      digit = c == '+' ? 62 : 63;
    else
      throw std::invalid_argument("is not Base64");
    bits = bits << 6 | digit;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes.push_back(static_cast<char>(bits >> held & 0xFF));
  }
  return bytes;
}

std::unique_ptr<const NormalizerStep> make_charsmap_step(Charsmap charsmap) {
  return std::make_unique<CharsmapStep>(std::move(charsmap));
}

}  // namespace lockstep::tokenizer
