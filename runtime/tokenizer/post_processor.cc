#include "runtime/tokenizer/post_processor.h"

#include <string>

namespace lockstep {
namespace {

constexpr char kAllowed[] =
    "BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing";

PostProcessor read_template(const JsonPlace& place) {
  const JsonPlace single = place.at("single");
  const JsonPlace special = place.at("special_tokens");
  PostProcessor found;
  bool text_met = false;
  for (size_t i = 0; i < single.elements(); ++i) {
    const JsonPlace part = single.element(i);
    if (const JsonPlace sequence = part.find("Sequence"); !sequence.is_null()) {
      if (sequence.at("id").text() != "A" || text_met) part.refuse("sequence A, once");
      text_met = true;
      continue;
    }
    const std::string name = part.at("SpecialToken").at("id").text();
    const JsonPlace ids = special.at(name).at("ids");
    for (size_t k = 0; k < ids.elements(); ++k)
      (text_met ? found.after : found.before).push_back(ids.element(k).id());
  }
  if (!text_met) single.refuse("a template with sequence A");
  return found;
}

// ["[SEP]", 102]
uint32_t read_pair(const JsonPlace& place) {
  if (place.elements() != 2) place.refuse("a token and its id");
  return place.element(1).id();
}

PostProcessor read_sequence(const JsonPlace& place) {
  const JsonPlace inner = place.at("processors");
  PostProcessor all;
  for (size_t i = 0; i < inner.elements(); ++i) {
    const PostProcessor outer = read_post_processor(inner.element(i));
    all.before.insert(all.before.begin(), outer.before.begin(), outer.before.end());
    all.after.insert(all.after.end(), outer.after.begin(), outer.after.end());
  }
  return all;
}

}  // namespace

PostProcessor read_post_processor(const JsonPlace& place) {
  if (place.is_null()) return {};
  const std::string type = place.type();
  if (type == "TemplateProcessing") return read_template(place);
  if (type == "BertProcessing" || type == "RobertaProcessing")
    return {{read_pair(place.at("cls"))}, {read_pair(place.at("sep"))}};
  if (type == "ByteLevel") return {};  // it trims offsets, of which there are none here
  if (type == "Sequence") return read_sequence(place);
  place.at("type").refuse(kAllowed);
}

}  // namespace lockstep
