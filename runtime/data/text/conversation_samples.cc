#include "runtime/data/text/conversation_samples.h"

#include <algorithm>

#include "runtime/data/text/text_samples.h"

namespace lockstep::data {
namespace {

class ConversationDataset final : public Dataset {
 public:
  ConversationDataset(std::shared_ptr<const ConversationStore> store,
                      const config::ModelTraits& model,
                      uint64_t seed,
                      bool shuffled,
                      bool padded,
                      const std::string& name)
      : Dataset(text_input(model, true), text_target(model, 0)),
        store_(std::move(store)),
        packing_(store_->boundaries(), model.context, !padded, name),
        seed_(seed),
        shuffled_(shuffled) {}

  int64_t samples() const override { return packing_.samples(); }

  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    const auto copy = [this](const Piece& piece, int32_t* ids, int32_t* targets) {
      for (int64_t i = 0; i < piece.length; ++i) {
        const int64_t next = piece.begin + i + 1;
        ids[i] = static_cast<int32_t>(store_->id(next - 1));
        targets[i] = store_->counted(next) ? static_cast<int32_t>(store_->id(next)) : -1;
      }
    };
    packing_.write_sample(key, shuffled_ && key.augment, seed_, input, target, copy);
  }

  int64_t length(int64_t index) const override { return packing_.length_of(index); }
  int64_t resident_bytes() const override {
    return store_->resident_bytes() + packing_.resident_bytes();
  }

 private:
  std::shared_ptr<const ConversationStore> store_;
  Packing packing_;
  uint64_t seed_;
  bool shuffled_;
};

}  // namespace

bool ConversationStore::add(const ConversationTokens& tokens) {
  const size_t length = std::min(tokens.ids.size(), max_);
  // The first token is never a target.
  const auto targets =
      length == 0 ? 0
                  : std::count(tokens.counted.begin() + 1,
                               tokens.counted.begin() + static_cast<std::ptrdiff_t>(length),
                               uint8_t{1});
  longest_ = std::max(longest_, static_cast<int64_t>(tokens.ids.size()));
  if (targets == 0) return false;
  if (tokens.ids.size() > max_) ++cut_;
  ids_.insert(
      ids_.end(), tokens.ids.begin(), tokens.ids.begin() + static_cast<std::ptrdiff_t>(length));
  counted_.insert(counted_.end(),
                  tokens.counted.begin(),
                  tokens.counted.begin() + static_cast<std::ptrdiff_t>(length));
  for (size_t i = 0; i < length; ++i) largest_id_ = std::max(largest_id_, tokens.ids[i]);
  boundaries_.push_back(static_cast<int64_t>(ids_.size()));
  counted_tokens_ += targets;
  return true;
}

int64_t ConversationStore::resident_bytes() const {
  return static_cast<int64_t>(ids_.capacity() * sizeof(uint32_t) + counted_.capacity() +
                              boundaries_.capacity() * sizeof(int64_t));
}

std::unique_ptr<Dataset> make_conversation_dataset(std::shared_ptr<const ConversationStore> store,
                                                   const config::ModelTraits& model,
                                                   uint64_t seed,
                                                   bool shuffled,
                                                   bool padded,
                                                   const std::string& name) {
  return std::make_unique<ConversationDataset>(
      std::move(store), model, seed, shuffled, padded, name);
}

}  // namespace lockstep::data
