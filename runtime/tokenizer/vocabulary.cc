#include "runtime/tokenizer/vocabulary.h"

#include <algorithm>

namespace lockstep::tokenizer {

void Vocabulary::add(std::string_view token, uint32_t id) {
  largest_id_ = std::max(largest_id_, id);
  ids_[texts_.emplace_back(token)] = id;
  tokens_[id] = &texts_.back();
}

std::optional<uint32_t> Vocabulary::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* Vocabulary::token_of(uint32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : found->second;
}

}  // namespace lockstep::tokenizer
