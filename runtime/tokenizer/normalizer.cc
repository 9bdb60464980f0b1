#include "runtime/tokenizer/normalizer.h"

#include <fmt/core.h>

#include <stdexcept>
#include <utility>

#include "runtime/base/text.h"
#include "runtime/tokenizer/charsmap.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

constexpr char kAllowed[] =
    "BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, Prepend, Replace, "
    "Sequence, Strip, StripAccents";

// Calls each(code point) for each character of a text.
template <typename Each>
void for_each_char(std::string_view text, Each&& each) {
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_char(text.data() + i);
    each(c.code);
    i += c.bytes;
  }
}

// Removes the characters for which drop(c) is true.
template <typename Drop>
void drop_chars(NormalizedText* text, Drop&& drop) {
  std::string kept;
  kept.reserve(text->text.size());
  for_each_char(text->text, [&](uint32_t c) {
    if (!drop(c))
      append_char(&kept, c);
    else if (kept.empty())
      text->at_start = false;
  });
  text->text = std::move(kept);
}

// Replaces each character by what append(&replaced, c) appends.
template <typename Append>
void replace_chars(std::string* text, const Append& append) {
  std::string replaced;
  replaced.reserve(text->size());
  for_each_char(*text, [&](uint32_t c) { append(&replaced, c); });
  *text = std::move(replaced);
}

void lower(std::string* text) { replace_chars(text, append_lowercase); }

// Counts the work of a normal form, which sorts runs of marks and may swap each pair of them once.
void count_reordering(std::string_view text, GrowthLimit& limit) {
  constexpr size_t kShortRun = 32;  // shorter runs are sorted quickly
  const uint16_t* classes = char_class_table();
  size_t marks = 0;
  const auto end_run = [&] {
    if (marks > kShortRun) limit.step(marks * marks);
    marks = 0;
  };
  for (size_t i = 0; i < text.size();) {
    if (static_cast<uint8_t>(text[i]) < 0x80) {
      end_run();
      ++i;
      continue;
    }
    const DecodedChar c = decode_char(text.data() + i);
    i += c.bytes;
    const bool becomes_mark = c.code == 0xFF9E || c.code == 0xFF9F;
    if (becomes_mark || (classes[c.code] & kMark) != 0)
      ++marks;
    else
      end_run();
  }
  end_run();
}

class Lowercase final : public NormalizerStep {
 public:
  void apply(NormalizedText* text, GrowthLimit&) const override { lower(&text->text); }
};

class Unicode final : public NormalizerStep {
 public:
  explicit Unicode(NormalForm form) : form_(form) {}
  void apply(NormalizedText* text, GrowthLimit& limit) const override {
    count_reordering(text->text, limit);
    text->text = normal_form(text->text, form_);
  }

 private:
  NormalForm form_;
};

class StripAccents final : public NormalizerStep {
 public:
  void apply(NormalizedText* text, GrowthLimit&) const override {
    drop_chars(text, [this](uint32_t c) { return (classes_[c] & kMark) != 0; });
  }

 private:
  const uint16_t* classes_ = char_class_table();
};

class Strip final : public NormalizerStep {
 public:
  explicit Strip(const JsonNode& node)
      : left_(node.at("strip_left").flag()), right_(node.at("strip_right").flag()) {}

  void apply(NormalizedText* text, GrowthLimit&) const override {
    const uint16_t* classes = char_class_table();
    std::string_view rest = text->text;
    const auto is_space = [&](size_t at) {
      return (classes[decode_char(rest.data() + at).code] & kSpace) != 0;
    };
    while (left_ && !rest.empty() && is_space(0)) {
      rest.remove_prefix(decode_char(rest.data()).bytes);
      text->at_start = false;
    }
    while (right_ && !rest.empty() && is_space(last_char_begin(rest)))
      rest.remove_suffix(rest.size() - last_char_begin(rest));
    text->text = std::string(rest);
  }

 private:
  bool left_, right_;
};

class Replace final : public NormalizerStep {
 public:
  Replace(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}

  void apply(NormalizedText* text, GrowthLimit& limit) const override {
    if (to_.empty() && text->text.starts_with(from_)) text->at_start = false;
    text->text = replace_all(text->text, from_, to_, limit);
  }

 private:
  std::string from_, to_;
};

// The regular expressions that Replace supports. Each matches runs of at least `at_least`
// white-space characters.
struct SpacesRule {
  std::string_view regex;
  bool only_blanks;  // only ' ', not all of \s
  size_t at_least;
  bool any_break;  // also a single \n, \r or \t
};

constexpr SpacesRule kSpacesRules[] = {
    {" {2,}", true, 2, false}, {R"(\s+)", false, 1, false}, {R"(\s{2,}|[\n\r\t])", false, 2, true}};

class ReplaceSpaces final : public NormalizerStep {
 public:
  ReplaceSpaces(const SpacesRule& rule, std::string to) : rule_(rule), to_(std::move(to)) {}

  void apply(NormalizedText* text, GrowthLimit& limit) const override {
    std::string replaced;
    const std::string_view from = text->text;
    for (size_t i = 0; i < from.size();) {
      size_t end = i, chars = 0;
      for (; end < from.size() && is_space(from, end); ++chars)
        end += decode_char(from.data() + end).bytes;
      const bool is_break =
          rule_.any_break && (from[i] == '\n' || from[i] == '\r' || from[i] == '\t');
      if (chars >= rule_.at_least || is_break) {
        limit.check(replaced.size() + to_.size());
        replaced.append(to_);
        if (i == 0 && to_.empty()) text->at_start = false;
      } else {
        end = std::max(end, i + decode_char(from.data() + i).bytes);
        replaced.append(from.substr(i, end - i));
      }
      i = end;
    }
    text->text = std::move(replaced);
  }

 private:
  bool is_space(std::string_view text, size_t at) const {
    if (rule_.only_blanks) return text[at] == ' ';
    return (classes_[decode_char(text.data() + at).code] & kSpace) != 0;
  }

  const SpacesRule& rule_;
  std::string to_;
  const uint16_t* classes_ = char_class_table();
};

class Prepend final : public NormalizerStep {
 public:
  // With an empty prefix the `tokenizers` package would double the first character.
  explicit Prepend(const JsonNode& node) : prefix_(node.at("prepend").text()) {
    if (prefix_.empty()) node.at("prepend").refuse("a text of at least one character");
  }
  void apply(NormalizedText* text, GrowthLimit& limit) const override {
    limit.check(text->text.size() + prefix_.size());
    if (!text->text.empty()) text->text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

// SentencePiece's nmt rule: control characters are removed, and other spaces and zero-width
// characters become spaces.
class Nmt final : public NormalizerStep {
 public:
  void apply(NormalizedText* text, GrowthLimit&) const override {
    drop_chars(text, [](uint32_t c) {
      return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
             c == 0x8F || c == 0x9F;
    });
    replace_chars(&text->text, [](std::string* mapped, uint32_t c) {
      const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                         c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      append_char(mapped, space ? ' ' : c);
    });
  }
};

class Bert final : public NormalizerStep {
 public:
  explicit Bert(const JsonNode& node)
      : clean_text_(node.at("clean_text").flag()),
        chinese_chars_(node.at("handle_chinese_chars").flag()),
        lowercase_(node.at("lowercase").flag()),
        strip_accents_(node.flag_or("strip_accents", lowercase_)) {}

  void apply(NormalizedText* text, GrowthLimit& limit) const override {
    if (clean_text_) clean(text);
    if (chinese_chars_) isolate_chinese(&text->text);
    if (strip_accents_) {
      count_reordering(text->text, limit);
      text->text = normal_form(text->text, NormalForm::kNfd);
      drop_chars(text, [this](uint32_t c) { return (classes_[c] & kNonspacing) != 0; });
    }
    if (lowercase_) lower(&text->text);
  }

 private:
  void clean(NormalizedText* text) const {
    drop_chars(text, [this](uint32_t c) {
      return c == 0 || c == 0xFFFD || (classes_[c] & kControl) != 0;
    });
    replace_chars(&text->text, [this](std::string* mapped, uint32_t c) {
      append_char(mapped, (classes_[c] & kSpace) != 0 ? ' ' : c);
    });
  }

  static bool is_chinese(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
  }

  static void isolate_chinese(std::string* text) {
    replace_chars(text, [](std::string* spaced, uint32_t c) {
      if (is_chinese(c)) spaced->push_back(' ');
      append_char(spaced, c);
      if (is_chinese(c)) spaced->push_back(' ');
    });
  }

  bool clean_text_, chinese_chars_, lowercase_, strip_accents_;
  const uint16_t* classes_ = char_class_table();
};

std::unique_ptr<const NormalizerStep> make_replace(const JsonNode& node) {
  const JsonNode pattern = node.at("pattern");
  std::string to = node.at("content").text();
  if (pattern.value().contains("String")) {
    std::string from = pattern.at("String").text();
    if (from.empty()) pattern.at("String").refuse("a text that is not empty");
    return std::make_unique<Replace>(std::move(from), std::move(to));
  }
  const JsonNode regex = pattern.at("Regex");
  std::string allowed;
  for (const SpacesRule& rule : kSpacesRules) {
    if (regex.text() == rule.regex) return std::make_unique<ReplaceSpaces>(rule, std::move(to));
    allowed.append(Json(rule.regex).dump()).append(", ");
  }
  regex.refuse(allowed + "or a String instead of a Regex");
}

std::unique_ptr<const NormalizerStep> make_precompiled(const JsonNode& node) {
  const JsonNode map = node.find("precompiled_charsmap");
  try {
    return make_charsmap_step(Charsmap(map.is_null() ? "" : decode_base64(map.text())));
  } catch (const std::invalid_argument& error) {
    map.fail(error.what());
  }
}

}  // namespace

Normalizer::Normalizer(const JsonNode& node) {
  if (!node.is_null()) add(node);
}

void Normalizer::add(const JsonNode& node) {
  const std::string type = node.type();
  const auto add_step = [&](std::unique_ptr<const NormalizerStep> step) {
    require_stage_count(stages_.size() + 1, node);
    stages_.push_back({fmt::format("{} ({})", node.name(), type), std::move(step)});
  };
  if (type == "Sequence") {
    const JsonNode inner = node.at("normalizers");
    for (size_t i = 0; i < inner.elements(); ++i) add(inner.element(i));
  } else if (type == "BertNormalizer") {
    add_step(std::make_unique<Bert>(node));
  } else if (type == "Lowercase") {
    add_step(std::make_unique<Lowercase>());
  } else if (type == "NFC") {
    add_step(std::make_unique<Unicode>(NormalForm::kNfc));
  } else if (type == "NFD") {
    add_step(std::make_unique<Unicode>(NormalForm::kNfd));
  } else if (type == "NFKC") {
    add_step(std::make_unique<Unicode>(NormalForm::kNfkc));
  } else if (type == "NFKD") {
    add_step(std::make_unique<Unicode>(NormalForm::kNfkd));
  } else if (type == "Nmt") {
    add_step(std::make_unique<Nmt>());
  } else if (type == "Precompiled") {
    add_step(make_precompiled(node));
  } else if (type == "Prepend") {
    add_step(std::make_unique<Prepend>(node));
  } else if (type == "Replace") {
    add_step(make_replace(node));
  } else if (type == "Strip") {
    add_step(std::make_unique<Strip>(node));
  } else if (type == "StripAccents") {
    add_step(std::make_unique<StripAccents>());
  } else {
    node.at("type").refuse(kAllowed);
  }
}

void Normalizer::apply(NormalizedText* text, GrowthLimit& limit) const {
  constexpr size_t kStepsOfStage = 64;
  for (const Stage& stage : stages_) {
    limit.enter(stage.name);
    limit.step(kStepsOfStage + text->text.size());
    stage.step->apply(text, limit);
    limit.check(text->text.size());
  }
}

std::string Normalizer::apply(std::string_view text, GrowthLimit& limit) const {
  NormalizedText normalized{std::string(text), false};
  apply(&normalized, limit);
  return std::move(normalized.text);
}

std::string replace_all(std::string_view text,
                        std::string_view from,
                        std::string_view to,
                        const GrowthLimit& limit,
                        size_t before) {
  std::string replaced;
  replaced.reserve(text.size());
  while (true) {
    const size_t at = find_text(text, from);
    replaced.append(text.substr(0, at));
    if (at == std::string_view::npos) return replaced;
    limit.check(before + replaced.size() + to.size());
    replaced.append(to);
    text.remove_prefix(at + from.size());
  }
}

}  // namespace lockstep::tokenizer
