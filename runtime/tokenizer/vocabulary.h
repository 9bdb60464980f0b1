#pragma once
// Tokens and their ids.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace lockstep::tokenizer {

class Vocabulary {
 public:
  // If a token occurs twice, its last id counts.
  void add(std::string_view token, uint32_t id);

  std::optional<uint32_t> id_of(std::string_view token) const;
  // Null if no token has the id.
  const std::string* token_of(uint32_t id) const;
  // The number of different tokens.
  size_t size() const { return ids_.size(); }
  uint32_t largest_id() const { return largest_id_; }

  // Calls each(token, id) in unspecified order.
  template <typename Each>
  void for_each(Each&& each) const {
    for (const auto& [token, id] : ids_) each(token, id);
  }

 private:
  std::deque<std::string> texts_;  // a deque, because ids_ and tokens_ refer to its elements
  std::unordered_map<std::string_view, uint32_t> ids_;
  std::unordered_map<uint32_t, const std::string*> tokens_;
  uint32_t largest_id_ = 0;
};

}  // namespace lockstep::tokenizer
