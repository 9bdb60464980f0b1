#include "runtime/tokenizer/post_processor.h"

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace lockstep::tokenizer {
namespace {

constexpr char kAllowed[] =
    "BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing";

TemplatePart text_part(int text, uint32_t segment) {
  return {.text = text, .segment = segment, .ids = {}};
}

TemplatePart special_part(std::vector<uint32_t> ids, uint32_t segment) {
  return {.text = TemplatePart::kSpecial, .segment = segment, .ids = std::move(ids)};
}

PostProcessor with_ends(TextTemplate single, TextTemplate pair) {
  PostProcessor made{std::move(single), std::move(pair), {}, {}};
  bool text_met = false;
  for (const TemplatePart& part : made.single) {
    if (part.text != TemplatePart::kSpecial) text_met = true;
    std::vector<uint32_t>& ids = text_met ? made.after : made.before;
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
  }
  return made;
}

// A post-processor that adds nothing to the texts.
PostProcessor plain() { return with_ends({text_part(0, 0)}, {text_part(0, 0), text_part(1, 1)}); }

uint32_t segment_of(const JsonNode& node) {
  const JsonNode type_id = node.find("type_id");
  return type_id.is_null() ? 0 : type_id.id();
}

// The members of an object by name. There may be as many as there are parts, so they are indexed.
class SpecialTokens {
 public:
  explicit SpecialTokens(const JsonNode& node) : node_(node) {
    if (node.value().kind() != Json::Kind::kObject) node.refuse("an object of special tokens");
    const Json* value = node.value().begin();
    for (const std::string& name : node.value().names()) values_.emplace(name, value++);
  }

  // The ids of one special token.
  JsonNode ids(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) node_.fail(fmt::format("has no '{}'", name));
    return node_.member(name, *found->second).at("ids");
  }

 private:
  const JsonNode& node_;
  std::unordered_map<std::string_view, const Json*> values_;
};

// Reads a list of {"Sequence": {"id": "A", "type_id": 0}} and {"SpecialToken": {"id": "[SEP]",
// ...}}. Tokens are given by name, so a small file could ask for any number of ids around a text;
// hence the limit.
TextTemplate read_parts(const JsonNode& node, const SpecialTokens& special, size_t texts) {
  constexpr size_t kMaxSpecial = 4096;  // models have a handful
  constexpr const char* kNames[] = {"A", "B"};
  TextTemplate parts;
  std::vector<int> times(texts, 0);
  size_t count = 0;  // of special tokens
  for (size_t i = 0; i < node.elements(); ++i) {
    const JsonNode part = node.element(i);
    if (const JsonNode sequence = part.find("Sequence"); !sequence.is_null()) {
      const std::string name = sequence.at("id").text();
      size_t text = 0;
      while (text < texts && name != kNames[text]) ++text;
      if (text == texts || ++times[text] > 1)
        part.refuse(texts == 1 ? "sequence A, once" : "sequences A and B, each once");
      parts.push_back(text_part(static_cast<int>(text), segment_of(sequence)));
      continue;
    }
    const JsonNode token = part.at("SpecialToken");
    const JsonNode numbers = special.ids(token.at("id").text());
    count += numbers.elements();
    if (count > kMaxSpecial)
      node.fail(fmt::format("has more than {} special tokens around a text; allowed: up to {}",
                            kMaxSpecial,
                            kMaxSpecial));
    std::vector<uint32_t> ids;
    for (size_t k = 0; k < numbers.elements(); ++k) ids.push_back(numbers.element(k).id());
    parts.push_back(special_part(std::move(ids), segment_of(token)));
  }
  for (const int met : times)
    if (met == 0)
      node.refuse(texts == 1 ? "a template with sequence A" : "a template with sequences A and B");
  return parts;
}

PostProcessor read_template(const JsonNode& node) {
  const JsonNode names = node.at("special_tokens"), pair = node.find("pair");
  const SpecialTokens special(names);
  return with_ends(
      read_parts(node.at("single"), special, 1),
      pair.is_null() || pair.elements() == 0 ? TextTemplate{} : read_parts(pair, special, 2));
}

// ["[SEP]", 102]
uint32_t read_pair(const JsonNode& node) {
  if (node.elements() != 2) node.refuse("a token and its id");
  return node.element(1).id();
}

// BERT: [CLS] A [SEP] B [SEP]; the second text and the token after it are in segment 1.
// RoBERTa: <s> A </s></s> B </s>, all in segment 0.
PostProcessor read_bert(const JsonNode& node, bool roberta) {
  const uint32_t cls = read_pair(node.at("cls")), sep = read_pair(node.at("sep"));
  const uint32_t second = roberta ? 0 : 1;
  const TextTemplate single = {special_part({cls}, 0), text_part(0, 0), special_part({sep}, 0)};
  TextTemplate pair = single;
  if (roberta) pair.push_back(special_part({sep}, 0));
  pair.insert(pair.end(), {text_part(1, second), special_part({sep}, second)});
  return with_ends(single, std::move(pair));
}

bool adds_nothing(const PostProcessor& processor) {
  return special_tokens_of(processor.single) == 0 && special_tokens_of(processor.pair) == 0;
}

// At most one processor may add tokens. If several did, a later one would wrap the result of an
// earlier one, by rules that differ between kinds.
PostProcessor read_sequence(const JsonNode& node) {
  const JsonNode inner = node.at("processors");
  PostProcessor all = plain();
  for (size_t i = 0; i < inner.elements(); ++i) {
    const JsonNode element = inner.element(i);
    PostProcessor processor = read_post_processor(element);
    if (adds_nothing(processor)) continue;
    if (!adds_nothing(all))
      element.fail("adds tokens, like an earlier one; at most one in a Sequence may add tokens");
    all = std::move(processor);
  }
  return all;
}

}  // namespace

PostProcessor read_post_processor(const JsonNode& node) {
  if (node.is_null()) return plain();
  const std::string type = node.type();
  if (type == "TemplateProcessing") return read_template(node);
  if (type == "BertProcessing") return read_bert(node, /*roberta=*/false);
  if (type == "RobertaProcessing") return read_bert(node, /*roberta=*/true);
  if (type == "ByteLevel") return plain();  // it only trims offsets, which do not exist here
  if (type == "Sequence") return read_sequence(node);
  node.at("type").refuse(kAllowed);
}

}  // namespace lockstep::tokenizer
