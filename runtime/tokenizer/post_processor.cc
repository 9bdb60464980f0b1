#include "runtime/tokenizer/post_processor.h"

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace lockstep {
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

// What texts are where nothing is put around them.
PostProcessor plain() { return with_ends({text_part(0, 0)}, {text_part(0, 0), text_part(1, 1)}); }

uint32_t segment_of(const JsonPlace& place) {
  const JsonPlace type_id = place.find("type_id");
  return type_id.is_null() ? 0 : type_id.id();
}

// The members of an object by name, in which there may be as many as there are parts.
class SpecialTokens {
 public:
  explicit SpecialTokens(const JsonPlace& place) : place_(place) {
    if (place.value().kind() != Json::Kind::kObject) place.refuse("an object of special tokens");
    const Json* value = place.value().begin();
    for (const std::string& name : place.value().names()) values_.emplace(name, value++);
  }

  // The ids of one.
  JsonPlace ids(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) place_.fail(fmt::format("has no '{}'", name));
    return place_.member(name, *found->second).at("ids");
  }

 private:
  const JsonPlace& place_;
  std::unordered_map<std::string_view, const Json*> values_;
};

// A list of {"Sequence": {"id": "A", "type_id": 0}} and {"SpecialToken": {"id": "[SEP]", ...}}. A
// token stands there by its name, so that a small file can ask for any number of ids around a text.
TextTemplate read_parts(const JsonPlace& place, const SpecialTokens& special, size_t texts) {
  constexpr size_t kMaxSpecial = 4096;  // models have a handful
  constexpr const char* kNames[] = {"A", "B"};
  TextTemplate parts;
  std::vector<int> times(texts, 0);
  size_t count = 0;  // of special tokens
  for (size_t i = 0; i < place.elements(); ++i) {
    const JsonPlace part = place.element(i);
    if (const JsonPlace sequence = part.find("Sequence"); !sequence.is_null()) {
      const std::string name = sequence.at("id").text();
      size_t text = 0;
      while (text < texts && name != kNames[text]) ++text;
      if (text == texts || ++times[text] > 1)
        part.refuse(texts == 1 ? "sequence A, once" : "sequences A and B, each once");
      parts.push_back(text_part(static_cast<int>(text), segment_of(sequence)));
      continue;
    }
    const JsonPlace token = part.at("SpecialToken");
    const JsonPlace numbers = special.ids(token.at("id").text());
    count += numbers.elements();
    if (count > kMaxSpecial)
      place.fail(fmt::format("has more than {} special tokens around a text; allowed: up to {}",
                             kMaxSpecial,
                             kMaxSpecial));
    std::vector<uint32_t> ids;
    for (size_t k = 0; k < numbers.elements(); ++k) ids.push_back(numbers.element(k).id());
    parts.push_back(special_part(std::move(ids), segment_of(token)));
  }
  for (const int met : times)
    if (met == 0)
      place.refuse(texts == 1 ? "a template with sequence A" : "a template with sequences A and B");
  return parts;
}

PostProcessor read_template(const JsonPlace& place) {
  const JsonPlace names = place.at("special_tokens"), pair = place.find("pair");
  const SpecialTokens special(names);
  return with_ends(
      read_parts(place.at("single"), special, 1),
      pair.is_null() || pair.elements() == 0 ? TextTemplate{} : read_parts(pair, special, 2));
}

// ["[SEP]", 102]
uint32_t read_pair(const JsonPlace& place) {
  if (place.elements() != 2) place.refuse("a token and its id");
  return place.element(1).id();
}

// [CLS] A [SEP] B [SEP], the second text and what follows it in segment 1.
PostProcessor read_bert(const JsonPlace& place) {
  const uint32_t cls = read_pair(place.at("cls")), sep = read_pair(place.at("sep"));
  const TextTemplate single = {special_part({cls}, 0), text_part(0, 0), special_part({sep}, 0)};
  TextTemplate pair = single;
  pair.insert(pair.end(), {text_part(1, 1), special_part({sep}, 1)});
  return with_ends(single, std::move(pair));
}

// <s> A </s></s> B </s>, all in segment 0.
PostProcessor read_roberta(const JsonPlace& place) {
  const uint32_t cls = read_pair(place.at("cls")), sep = read_pair(place.at("sep"));
  const TextTemplate single = {special_part({cls}, 0), text_part(0, 0), special_part({sep}, 0)};
  TextTemplate pair = single;
  pair.insert(pair.end(), {special_part({sep}, 0), text_part(1, 0), special_part({sep}, 0)});
  return with_ends(single, std::move(pair));
}

bool adds_nothing(const PostProcessor& processor) {
  return special_tokens_of(processor.single) == 0 && special_tokens_of(processor.pair) == 0;
}

// Of several that add tokens a later one stands around what an earlier one has made, by rules that
// differ from one to another.
PostProcessor read_sequence(const JsonPlace& place) {
  const JsonPlace inner = place.at("processors");
  PostProcessor all = plain();
  for (size_t i = 0; i < inner.elements(); ++i) {
    const JsonPlace element = inner.element(i);
    PostProcessor processor = read_post_processor(element);
    if (adds_nothing(processor)) continue;
    if (!adds_nothing(all))
      element.fail("adds tokens, as one before it does; allowed: one that does in a Sequence");
    all = std::move(processor);
  }
  return all;
}

}  // namespace

PostProcessor read_post_processor(const JsonPlace& place) {
  if (place.is_null()) return plain();
  const std::string type = place.type();
  if (type == "TemplateProcessing") return read_template(place);
  if (type == "BertProcessing") return read_bert(place);
  if (type == "RobertaProcessing") return read_roberta(place);
  if (type == "ByteLevel") return plain();  // it trims offsets, of which there are none here
  if (type == "Sequence") return read_sequence(place);
  place.at("type").refuse(kAllowed);
}

}  // namespace lockstep
