#pragma once
// Conversations in memory, packed into samples.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/text/conversation_tokens.h"
#include "runtime/data/text/packing.h"

namespace lockstep {

// The tokens of conversations, one after the other.
class ConversationStore {
 public:
  // At most so many tokens of each are kept: those beyond are cut off.
  explicit ConversationStore(int64_t most) : most_(static_cast<size_t>(most)) {}

  // Whether it has a token to be predicted; else it is left out.
  bool add(const ConversationTokens& tokens);

  const DocumentBorders& borders() const { return borders_; }
  uint32_t id(int64_t token) const { return ids_[static_cast<size_t>(token)]; }
  bool counted(int64_t token) const { return counted_[static_cast<size_t>(token)] != 0; }
  int64_t conversations() const { return static_cast<int64_t>(borders_.size()) - 1; }
  int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }
  int64_t counted_tokens() const { return counted_tokens_; }
  int64_t cut() const { return cut_; }          // conversations
  int64_t longest() const { return longest_; }  // in tokens, before it is cut
  uint32_t largest_id() const { return largest_id_; }
  int64_t resident_bytes() const;

 private:
  size_t most_;
  std::vector<uint32_t> ids_;
  std::vector<uint8_t> counted_;
  DocumentBorders borders_ = {0};
  int64_t counted_tokens_ = 0, cut_ = 0, longest_ = 0;
  uint32_t largest_id_ = 0;
};

// Samples as those of packing.h, but only tokens that count are targets. `padded`: each conversation
// has a sample of its own. `name` is the file's for messages. Throws DataError where there is none.
std::unique_ptr<Dataset> make_conversation_dataset(std::shared_ptr<const ConversationStore> store,
                                                   const ModelTraits& model,
                                                   uint64_t seed,
                                                   bool shuffled,
                                                   bool padded,
                                                   const std::string& name);

}  // namespace lockstep
