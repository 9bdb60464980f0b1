#include "runtime/data/text/text_encoding.h"

#include <algorithm>
#include <string>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"

namespace lockstep::data {

std::pair<int64_t, int64_t> longest_first(int64_t first, int64_t second, int64_t room) {
  if (first + second <= room) return {first, second};
  const int64_t half = room / 2;
  const auto [shorter, longer] = std::minmax(first, second);
  // Keep the shorter text in full if it takes at most half of the room.
  const int64_t kept = shorter <= room - shorter ? shorter : half;
  return first > second ? std::pair(room - kept, kept) : std::pair(kept, room - kept);
}

TextForm::TextForm(const tokenizer::Tokenizer& tokenizer,
                   bool pairs,
                   const config::ModelTraits& model,
                   const std::string& field)
    : tokenizer_(&tokenizer),
      pairs_(pairs),
      parts_(pairs ? tokenizer.pair_template() : tokenizer.text_template()),
      room_(model.context - tokenizer::special_tokens_of(parts_)) {
  if (parts_.empty())
    throw ConfigError(
        "{}: the tokenizer has no template for pairs of texts; use a tokenizer.json with a "
        "post_processor that has one",
        field);
  for (const tokenizer::TemplatePart& part : parts_)
    if (part.segment >= static_cast<uint32_t>(std::max<int64_t>(model.segments, 1)))
      model.refuse(model.segments_field,
                   model.segments,
                   "segment",
                   "",
                   fmt::format("at least {}, because the tokenizer of {} has a segment {}",
                               part.segment + 1,
                               field,
                               part.segment));
  if (room_ < (pairs ? 2 : 1))
    config::refuse_value(model.field("context"),
                         model.context,
                         "above {}, the number of special tokens in a sample",
                         model.context - room_);
  if (model.vocabulary > 0 && tokenizer.id_limit() > model.vocabulary)
    model.refuse(
        model.vocabulary_field,
        model.vocabulary,
        "token",
        "0, or ",
        fmt::format(
            "at least {}, the vocabulary of the tokenizer of {}", tokenizer.id_limit(), field));
}

void TextForm::assemble(std::span<const uint32_t> first,
                        std::span<const uint32_t> second,
                        EncodedText* encoded) const {
  const auto [kept, kept_second] =
      longest_first(static_cast<int64_t>(first.size()), static_cast<int64_t>(second.size()), room_);
  const std::span<const uint32_t> texts[] = {first.first(static_cast<size_t>(kept)),
                                             second.first(static_cast<size_t>(kept_second))};
  encoded->ids.clear();
  encoded->first_length = static_cast<int32_t>(kept);
  encoded->cut = static_cast<int64_t>(first.size() + second.size()) > kept + kept_second;
  for (const tokenizer::TemplatePart& part : parts_) {
    const std::span<const uint32_t> ids =
        part.text == tokenizer::TemplatePart::kSpecial ? std::span(part.ids) : texts[part.text];
    encoded->ids.insert(encoded->ids.end(), ids.begin(), ids.end());
  }
}

}  // namespace lockstep::data
