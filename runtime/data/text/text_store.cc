#include "runtime/data/text/text_store.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/data/text/text_samples.h"

namespace lockstep::data {

TextStore::TextStore(tokenizer::TextTemplate parts, uint32_t id_limit)
    : parts_(std::move(parts)),
      narrow_(id_limit <= uint32_t{std::numeric_limits<uint16_t>::max()} + 1),
      pairs_(std::ranges::any_of(
          parts_, [](const tokenizer::TemplatePart& part) { return part.text == 1; })) {}

void TextStore::add(const EncodedText& text) {
  if (narrow_)
    for (const uint32_t id : text.ids) narrow_ids_.push_back(static_cast<uint16_t>(id));
  else
    wide_ids_.insert(wide_ids_.end(), text.ids.begin(), text.ids.end());
  end_.push_back((end_.empty() ? 0 : end_.back()) + static_cast<int64_t>(text.ids.size()));
  if (pairs_) first_length_.push_back(text.first_length);
}

void TextStore::add_again(int64_t index) {
  EncodedText text;
  for (int64_t at = begin(index); at < end_[static_cast<size_t>(index)]; ++at)
    text.ids.push_back(id(at));
  if (pairs_) text.first_length = first_length_[static_cast<size_t>(index)];
  add(text);
}

void TextStore::shrink() {
  narrow_ids_.shrink_to_fit();
  wide_ids_.shrink_to_fit();
  end_.shrink_to_fit();
  first_length_.shrink_to_fit();
}

void TextStore::read(int64_t index, int64_t context, int32_t* rows) const {
  int32_t *const tokens = rows + kTokenRow * context,
                 *const documents = rows + kDocumentRow * context,
                 *const positions = rows + kPositionRow * context,
                 *const segments = rows + kSegmentRow * context;
  const int64_t first = begin(index), count = length(index);
  for (int64_t t = 0; t < count; ++t) tokens[t] = static_cast<int32_t>(id(first + t));
  std::fill_n(documents, count, 0);
  std::iota(positions, positions + count, 0);
  // The tokens that are neither special nor of the first text are of the second.
  const int64_t texts = count - tokenizer::special_tokens_of(parts_);
  const int64_t first_length = pairs_ ? first_length_[static_cast<size_t>(index)] : texts;
  int64_t t = 0;
  for (const tokenizer::TemplatePart& part : parts_) {
    const int64_t length = part.text == tokenizer::TemplatePart::kSpecial
                               ? static_cast<int64_t>(part.ids.size())
                               : (part.text == 0 ? first_length : texts - first_length);
    std::fill_n(segments + t, length, static_cast<int32_t>(part.segment));
    t += length;
  }
  for (int32_t* const zeros : {tokens, positions, segments})
    std::fill(zeros + count, zeros + context, 0);
  std::fill(documents + count, documents + context, -1);
}

int64_t TextStore::resident_bytes() const {
  return static_cast<int64_t>(
      narrow_ids_.capacity() * sizeof(uint16_t) + wide_ids_.capacity() * sizeof(uint32_t) +
      end_.capacity() * sizeof(int64_t) + first_length_.capacity() * sizeof(int32_t));
}

void TextStore::add_to(Checksum* checksum) const {
  const auto add = [&](const auto& values) {
    checksum->update(values.data(), values.size() * sizeof(values[0]));
  };
  add(narrow_ids_);
  add(wide_ids_);
  add(end_);
  add(first_length_);
}

}  // namespace lockstep::data
