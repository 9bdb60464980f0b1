#include "runtime/tokenizer/pre_tokenizer.h"

#include <fmt/core.h>

#include <array>
#include <unordered_map>
#include <utility>

#include "runtime/base/text.h"
#include "runtime/tokenizer/metaspace.h"
#include "runtime/tokenizer/split_behavior.h"
#include "runtime/tokenizer/split_rules.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

constexpr char kAllowed[] =
    "BertPreTokenizer, ByteLevel, Digits, Metaspace, Punctuation, Sequence, Split, Whitespace, "
    "WhitespaceSplit";

// Splits at characters of a class.
class CharSplit final : public PreTokenizerStep {
 public:
  CharSplit(CharClass wanted, SplitBehavior behavior) : wanted_(wanted), behavior_(behavior) {}

  void split(TextPiece piece, PieceBuffer&, PieceSink& next) const override {
    BehaviorSplitter pieces(piece, behavior_, next);
    size_t between = 0;
    for (size_t i = 0; i < piece.text.size();) {
      const DecodedChar c = decode_char(piece.text.data() + i);
      if ((classes_[c.code] & wanted_) != 0) {
        pieces.take(between, i, false);
        pieces.take(i, i + c.bytes, true);
        between = i + c.bytes;
      }
      i += c.bytes;
    }
    pieces.take(between, piece.text.size(), false);
    pieces.finish();
  }

 private:
  CharClass wanted_;
  SplitBehavior behavior_;
  const uint16_t* classes_ = char_class_table();
};

// \w+|[^\w\s]+
class Whitespace final : public PreTokenizerStep {
 public:
  void split(TextPiece piece, PieceBuffer&, PieceSink& next) const override {
    constexpr uint16_t kKinds = kWord | kSpace;
    size_t begin = 0;
    uint16_t kind = kSpace;
    for (size_t i = 0; i < piece.text.size();) {
      const DecodedChar c = decode_char(piece.text.data() + i);
      const auto kind_here = static_cast<uint16_t>(classes_[c.code] & kKinds);
      if (kind_here != kind) {
        pass(piece, begin, i, kind, next);
        begin = i;
        kind = kind_here;
      }
      i += c.bytes;
    }
    pass(piece, begin, piece.text.size(), kind, next);
  }

 private:
  static void pass(TextPiece piece, size_t begin, size_t end, uint16_t kind, PieceSink& next) {
    if (kind != kSpace && begin < end)
      next.take({piece.text.substr(begin, end - begin), piece.at_start && begin == 0});
  }

  const uint16_t* classes_ = char_class_table();
};

class RuleSplit final : public PreTokenizerStep {
 public:
  explicit RuleSplit(SplitRule rule) : rule_(rule) {}
  void split(TextPiece piece, PieceBuffer&, PieceSink& next) const override { rule_(piece, next); }

 private:
  SplitRule rule_;
};

// Splits at each occurrence of a text.
class TextSplit final : public PreTokenizerStep {
 public:
  TextSplit(std::string text, SplitBehavior behavior, bool invert)
      : text_(std::move(text)), behavior_(behavior), invert_(invert) {}

  void split(TextPiece piece, PieceBuffer&, PieceSink& next) const override {
    BehaviorSplitter pieces(piece, behavior_, next);
    size_t begin = 0;
    for (size_t at = find_text(piece.text, text_); at != std::string_view::npos;
         at = find_text(piece.text, text_, begin)) {
      pieces.take(begin, at, invert_);
      pieces.take(at, at + text_.size(), !invert_);
      begin = at + text_.size();
    }
    pieces.take(begin, piece.text.size(), invert_);
    pieces.finish();
  }

 private:
  std::string text_;
  SplitBehavior behavior_;
  bool invert_;
};

class PrefixSpace final : public PreTokenizerStep {
 public:
  void split(TextPiece piece, PieceBuffer& buffer, PieceSink& next) const override {
    if (!piece.text.starts_with(' ')) {
      buffer.cleared().assign(1, ' ').append(piece.text);
      piece.text = buffer.finished();
    }
    next.take(piece);
  }
};

class ByteChars final : public PreTokenizerStep {
 public:
  void split(TextPiece piece, PieceBuffer& buffer, PieceSink& next) const override {
    const std::string* chars = byte_level_chars();
    std::string& text = buffer.cleared();
    for (const char c : piece.text) text.append(chars[static_cast<uint8_t>(c)]);
    next.take({buffer.finished(), piece.at_start});
  }
};

std::unique_ptr<const PreTokenizerStep> make_split(const JsonNode& node) {
  const JsonNode pattern = node.at("pattern");
  const SplitBehavior behavior = split_behavior(node.at("behavior"));
  const bool invert = node.flag_or("invert", false);
  if (pattern.value().contains("String")) {
    std::string text = pattern.at("String").text();
    if (text.empty()) pattern.at("String").refuse("a text that is not empty");
    return std::make_unique<TextSplit>(std::move(text), behavior, invert);
  }
  const JsonNode regex = pattern.at("Regex");
  const SplitRule rule = split_rule_of(regex.text());
  if (rule == nullptr) regex.refuse("the regular expressions of " + known_split_rules());
  // The matches of a known rule cover the whole text. So keeping each match is the same as removing
  // what does not match.
  if (behavior != SplitBehavior::kIsolated && !(behavior == SplitBehavior::kRemoved && invert))
    node.at("behavior").refuse("Isolated, or Removed with invert, for this regular expression");
  return std::make_unique<RuleSplit>(rule);
}

}  // namespace

const std::string* byte_level_chars() {
  static const auto chars = [] {
    std::array<std::string, 256> chars_of;
    uint32_t next = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool stands_for_itself =
          (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      append_char(&chars_of[byte], stands_for_itself ? byte : next++);
    }
    return chars_of;
  }();
  return chars.data();
}

bool bytes_of_byte_level(std::string_view text, std::string* bytes) {
  static const auto byte_of = [] {
    std::unordered_map<uint32_t, char> bytes_of;
    for (int byte = 0; byte < 256; ++byte)
      bytes_of[decode_char(byte_level_chars()[byte].data()).code] = static_cast<char>(byte);
    return bytes_of;
  }();
  bytes->clear();
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_char(text.data() + i);
    const auto found = byte_of.find(c.code);
    if (found == byte_of.end()) {
      bytes->clear();
      return false;
    }
    bytes->push_back(found->second);
    i += c.bytes;
  }
  return true;
}

PreTokenizer::PreTokenizer(const JsonNode& node, bool bytes_wanted) {
  if (!node.is_null()) add(node);
  if (bytes_wanted && !stages_.empty() &&
      dynamic_cast<const ByteChars*>(stages_.back().step.get()) != nullptr) {
    stages_.pop_back();
    gives_bytes_ = true;
  }
}

void PreTokenizer::add_step(const JsonNode& node, std::unique_ptr<const PreTokenizerStep> step) {
  require_stage_count(stages_.size() + 1, node);
  stages_.push_back({fmt::format("{} ({})", node.name(), node.type()), std::move(step)});
}

void PreTokenizer::add_byte_level(const JsonNode& node) {
  if (node.at("add_prefix_space").flag()) add_step(node, std::make_unique<PrefixSpace>());
  if (node.flag_or("use_regex", true)) add_step(node, std::make_unique<RuleSplit>(split_as_gpt2));
  add_step(node, std::make_unique<ByteChars>());
}

void PreTokenizer::add(const JsonNode& node) {
  const std::string type = node.type();
  const auto split_at = [&](CharClass wanted, SplitBehavior behavior) {
    add_step(node, std::make_unique<CharSplit>(wanted, behavior));
  };
  if (type == "Sequence") {
    const JsonNode inner = node.at("pretokenizers");
    for (size_t i = 0; i < inner.elements(); ++i) add(inner.element(i));
  } else if (type == "BertPreTokenizer") {
    split_at(kSpace, SplitBehavior::kRemoved);
    split_at(kPunctuation, SplitBehavior::kIsolated);
  } else if (type == "ByteLevel") {
    add_byte_level(node);
  } else if (type == "Digits") {
    split_at(kNumeric,
             node.at("individual_digits").flag() ? SplitBehavior::kIsolated
                                                 : SplitBehavior::kContiguous);
  } else if (type == "Metaspace") {
    add_step(node, make_metaspace(node));
  } else if (type == "Punctuation") {
    const JsonNode behavior = node.find("behavior");
    split_at(kPunctuation,
             behavior.is_null() ? SplitBehavior::kIsolated : split_behavior(behavior));
  } else if (type == "Split") {
    add_step(node, make_split(node));
  } else if (type == "Whitespace") {
    add_step(node, std::make_unique<Whitespace>());
  } else if (type == "WhitespaceSplit") {
    split_at(kSpace, SplitBehavior::kRemoved);
  } else {
    node.at("type").refuse(kAllowed);
  }
}

PreTokenizer::Run::Run(const PreTokenizer& steps, PieceSink& last) : first_(&last) {
  for (size_t i = steps.stages_.size(); i-- > 0;) {
    links_.push_back(std::make_unique<Link>(steps.stages_[i], *first_));
    first_ = links_.back().get();
  }
}

void PreTokenizer::Run::begin(GrowthLimit* limit) {
  for (const auto& link : links_) link->begin(limit);
}

void PreTokenizer::Run::split(TextPiece piece) {
  if (!piece.text.empty()) first_->take(piece);
}

}  // namespace lockstep::tokenizer
