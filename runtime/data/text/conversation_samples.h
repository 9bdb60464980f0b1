#pragma once
// Tokenised conversations in memory, packed into samples.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/text/conversation_tokens.h"
#include "runtime/data/text/packing.h"

namespace lockstep::data {

// The concatenated tokens of conversations.
class ConversationStore {
 public:
  // Longer conversations are truncated to `max_tokens`.
  explicit ConversationStore(int64_t max_tokens) : max_(static_cast<size_t>(max_tokens)) {}

  // Adds a conversation if it has a token to predict. Returns whether it has.
  bool add(const ConversationTokens& tokens);

  const DocumentBoundaries& boundaries() const { return boundaries_; }
  uint32_t id(int64_t token) const { return ids_[static_cast<size_t>(token)]; }
  bool counted(int64_t token) const { return counted_[static_cast<size_t>(token)] != 0; }
  int64_t conversations() const { return static_cast<int64_t>(boundaries_.size()) - 1; }
  int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }
  int64_t counted_tokens() const { return counted_tokens_; }
  int64_t cut() const { return cut_; }          // number of truncated conversations
  int64_t longest() const { return longest_; }  // tokens of the longest one, before truncation
  uint32_t largest_id() const { return largest_id_; }
  int64_t resident_bytes() const;

 private:
  size_t max_;
  std::vector<uint32_t> ids_;
  std::vector<uint8_t> counted_;
  DocumentBoundaries boundaries_ = {0};
  int64_t counted_tokens_ = 0, cut_ = 0, longest_ = 0;
  uint32_t largest_id_ = 0;
};

// Samples like those of make_packed_dataset(), except that only counted tokens are targets.
// `padded`: each conversation has a sample of its own. `name`: the file's, for messages. Throws
// DataError if there are no conversations.
std::unique_ptr<Dataset> make_conversation_dataset(std::shared_ptr<const ConversationStore> store,
                                                   const config::ModelTraits& model,
                                                   uint64_t seed,
                                                   bool shuffled,
                                                   bool padded,
                                                   const std::string& name);

}  // namespace lockstep::data
