#include "runtime/tokenizer/decoder.h"

#include <fmt/core.h>

#include <charconv>
#include <utility>

#include "runtime/base/text.h"
#include "runtime/tokenizer/metaspace.h"
#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/pre_tokenizer.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

constexpr char kAllowed[] =
    "BPEDecoder, ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip, WordPiece";

class ByteLevel final : public DecoderStep {
 public:
  void apply(std::vector<std::string>* tokens, GrowthLimit&) const override {
    std::string bytes, part;
    for (const std::string& token : *tokens)
      bytes.append(bytes_of_byte_level(token, &part) ? part : token);
    std::string text;
    append_as_utf8(&text, bytes);
    tokens->assign(1, std::move(text));
  }
};

class Fuse final : public DecoderStep {
 public:
  void apply(std::vector<std::string>* tokens, GrowthLimit&) const override {
    tokens->assign(1, joined(*tokens, ""));
  }
};

class Metaspace final : public DecoderStep {
 public:
  explicit Metaspace(MetaspaceOptions options) : options_(std::move(options)) {}

  void apply(std::vector<std::string>* tokens, GrowthLimit& limit) const override {
    for (size_t i = 0; i < tokens->size(); ++i) {
      const bool drops = i == 0 && options_.prepend != PrependScheme::kNever;
      (*tokens)[i] = replace_all((*tokens)[i], options_.replacement, drops ? "" : " ", limit);
    }
  }

 private:
  MetaspaceOptions options_;
};

class Replace final : public DecoderStep {
 public:
  Replace(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}

  void apply(std::vector<std::string>* tokens, GrowthLimit& limit) const override {
    size_t made = 0;
    for (std::string& token : *tokens) {
      token = replace_all(token, from_, to_, limit, made);
      made += token.size();
    }
  }

 private:
  std::string from_, to_;
};

// Joins consecutive tokens <0x00> to <0xFF> to characters. If their bytes are not valid UTF-8, each
// byte becomes U+FFFD.
class ByteFallback final : public DecoderStep {
 public:
  void apply(std::vector<std::string>* tokens, GrowthLimit&) const override {
    std::vector<std::string> result;
    std::string bytes;
    const auto end_bytes = [&] {
      if (valid_utf8_bytes(bytes) == bytes.size()) {
        if (!bytes.empty()) result.push_back(bytes);
      } else {
        result.insert(result.end(), bytes.size(), "\xEF\xBF\xBD");
      }
      bytes.clear();
    };
    for (std::string& token : *tokens) {
      if (const int byte = byte_of(token); byte >= 0) {
        bytes.push_back(static_cast<char>(byte));
        continue;
      }
      end_bytes();
      result.push_back(std::move(token));
    }
    end_bytes();
    *tokens = std::move(result);
  }

 private:
  static int byte_of(const std::string& token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    int byte = -1;
    const char* end = token.data() + 5;
    return std::from_chars(token.data() + 3, end, byte, 16).ptr == end && byte >= 0 ? byte : -1;
  }
};

class Strip final : public DecoderStep {
 public:
  explicit Strip(const JsonNode& node)
      : content_(node.at("content").one_char()),
        start_(node.at("start").id()),
        stop_(node.at("stop").id()) {}

  void apply(std::vector<std::string>* tokens, GrowthLimit&) const override {
    for (std::string& token : *tokens) {
      std::string_view rest = token;
      for (uint32_t i = 0; i < start_ && rest.starts_with(content_); ++i)
        rest.remove_prefix(content_.size());
      for (uint32_t i = 0; i < stop_ && rest.ends_with(content_); ++i)
        rest.remove_suffix(content_.size());
      token = std::string(rest);
    }
  }

 private:
  std::string content_;
  uint32_t start_, stop_;
};

class WordPiece final : public DecoderStep {
 public:
  explicit WordPiece(const JsonNode& node)
      : prefix_(node.at("prefix").text()), cleanup_(node.at("cleanup").flag()) {}

  void apply(std::vector<std::string>* tokens, GrowthLimit& limit) const override {
    for (size_t i = 0; i < tokens->size(); ++i) {
      std::string& token = (*tokens)[i];
      if (i > 0 && token.starts_with(prefix_))
        token.erase(0, prefix_.size());
      else if (i > 0)
        token = " " + token;
      if (cleanup_) clean(&token, limit);
    }
  }

 private:
  // Removes spaces that English text does not have, such as those before a comma.
  static void clean(std::string* token, const GrowthLimit& limit) {
    constexpr std::pair<const char*, const char*> kReplaced[] = {{" .", "."},
                                                                 {" ?", "?"},
                                                                 {" !", "!"},
                                                                 {" ,", ","},
                                                                 {" ' ", "'"},
                                                                 {" n't", "n't"},
                                                                 {" 'm", "'m"},
                                                                 {" do not", " don't"},
                                                                 {" 's", "'s"},
                                                                 {" 've", "'ve"},
                                                                 {" 're", "'re"}};
    for (const auto& [from, to] : kReplaced) *token = replace_all(*token, from, to, limit);
  }

  std::string prefix_;
  bool cleanup_;
};

// The suffix marks the end of a word.
class Bpe final : public DecoderStep {
 public:
  explicit Bpe(const JsonNode& node) : suffix_(node.at("suffix").text()) {
    if (suffix_.empty()) node.at("suffix").refuse("a text that is not empty");
  }

  void apply(std::vector<std::string>* tokens, GrowthLimit& limit) const override {
    for (size_t i = 0; i < tokens->size(); ++i)
      (*tokens)[i] = replace_all((*tokens)[i], suffix_, i + 1 == tokens->size() ? "" : " ", limit);
  }

 private:
  std::string suffix_;
};

std::unique_ptr<const DecoderStep> make_replace(const JsonNode& node) {
  const JsonNode pattern = node.at("pattern");
  if (!pattern.value().contains("String")) pattern.refuse("a String");
  std::string from = pattern.at("String").text();
  if (from.empty()) pattern.at("String").refuse("a text that is not empty");
  return std::make_unique<Replace>(std::move(from), node.at("content").text());
}

}  // namespace

Decoder::Decoder(const JsonNode& node) {
  if (node.is_null()) return;
  joined_with_spaces_ = false;
  add(node);
}

void Decoder::add(const JsonNode& node) {
  const std::string type = node.type();
  const auto add_step = [&](std::unique_ptr<const DecoderStep> step) {
    require_stage_count(stages_.size() + 1, node);
    stages_.push_back({fmt::format("{} ({})", node.name(), type), std::move(step)});
  };
  if (type == "Sequence") {
    const JsonNode inner = node.at("decoders");
    for (size_t i = 0; i < inner.elements(); ++i) add(inner.element(i));
  } else if (type == "BPEDecoder") {
    add_step(std::make_unique<Bpe>(node));
  } else if (type == "ByteFallback") {
    add_step(std::make_unique<ByteFallback>());
  } else if (type == "ByteLevel") {
    add_step(std::make_unique<ByteLevel>());
  } else if (type == "Fuse") {
    add_step(std::make_unique<Fuse>());
  } else if (type == "Metaspace") {
    add_step(std::make_unique<Metaspace>(metaspace_options(node)));
  } else if (type == "Replace") {
    add_step(make_replace(node));
  } else if (type == "Strip") {
    add_step(std::make_unique<Strip>(node));
  } else if (type == "WordPiece") {
    add_step(std::make_unique<WordPiece>(node));
  } else {
    node.at("type").refuse(kAllowed);
  }
}

std::string Decoder::decode(std::vector<std::string> tokens, GrowthLimit& limit) const {
  constexpr size_t kStepsOfStage = 64;
  const auto bytes = [&] {
    size_t sum = 0;
    for (const std::string& token : tokens) sum += token.size();
    return sum;
  };
  for (const Stage& stage : stages_) {
    limit.enter(stage.name);
    limit.step(kStepsOfStage + tokens.size() + bytes());
    stage.step->apply(&tokens, limit);
    limit.check(bytes());
  }
  return joined(tokens, joined_with_spaces_ ? " " : "");
}

}  // namespace lockstep::tokenizer
