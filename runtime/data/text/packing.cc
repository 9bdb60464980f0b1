#include "runtime/data/text/packing.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "runtime/base/content_hash.h"
#include "runtime/base/error.h"
#include "runtime/data/sampler.h"

namespace lockstep::data {
namespace {

// The pieces of the wanted documents, in stored order.
std::vector<Piece> cut(const DocumentBoundaries& documents,
                       int64_t context,
                       int64_t ahead,
                       const std::function<bool(int64_t)>& wanted) {
  std::vector<Piece> pieces;
  for (size_t d = 0; d + 1 < documents.size(); ++d) {
    if (wanted && !wanted(static_cast<int64_t>(d))) continue;
    const int64_t end = documents[d + 1] - ahead;
    for (int64_t begin = documents[d]; begin < end; begin += context)
      pieces.push_back({begin, std::min(context, end - begin)});
  }
  return pieces;
}

// Best-fit decreasing: the sample of each piece. The lengths of `pieces` must descend. with_room
// has the samples that are not full, by remaining room.
std::vector<int32_t> best_fit(const std::vector<Piece>& pieces, int64_t context) {
  std::map<int64_t, std::vector<int32_t>> with_room;
  std::vector<int32_t> sample_of(pieces.size());
  int32_t samples = 0;
  for (size_t slot = 0; slot < pieces.size(); ++slot) {
    int64_t room = context;
    int32_t sample = samples;
    const auto best = with_room.lower_bound(pieces[slot].length);
    if (best == with_room.end()) {
      ++samples;
    } else {
      room = best->first;
      sample = best->second.back();
      best->second.pop_back();
      if (best->second.empty()) with_room.erase(best);
    }
    sample_of[slot] = sample;
    room -= pieces[slot].length;
    if (room > 0) with_room[room].push_back(sample);
  }
  return sample_of;
}

// A different seed for the pieces of each length.
uint64_t seed_of_length(uint64_t seed, int64_t length) {
  return split_mix(seed + static_cast<uint64_t>(length) * kSplitMixStep);
}

class PackedDataset final : public Dataset {
 public:
  PackedDataset(std::shared_ptr<const SourceFile> file,
                TokenSequence tokens,
                std::shared_ptr<const Packing> packing,
                const config::ModelTraits& model,
                uint64_t seed,
                bool shuffled)
      : Dataset({DType::kI32, Shape{3, model.context}}, {DType::kI32, Shape{model.context}}),
        file_(std::move(file)),
        tokens_(tokens),
        packing_(std::move(packing)),
        seed_(seed),
        shuffled_(shuffled),
        predicts_next_(model.text_task == config::TextTask::kNextToken) {}

  int64_t samples() const override { return packing_->samples(); }

  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    const auto copy = [this](const Piece& piece, int32_t* ids, int32_t* targets) {
      for (int64_t i = 0; i < piece.length; ++i) {
        ids[i] = tokens_[piece.begin + i];
        if (predicts_next_) targets[i] = tokens_[piece.begin + i + 1];
      }
    };
    packing_->write_sample(key, shuffled_ && key.augment, seed_, input, target, copy);
  }

  int64_t length(int64_t index) const override { return packing_->length_of(index); }

  int64_t resident_bytes() const override {
    return static_cast<int64_t>(tokens_.bytes.size()) + packing_->resident_bytes();
  }

 private:
  std::shared_ptr<const SourceFile> file_;
  TokenSequence tokens_;
  std::shared_ptr<const Packing> packing_;
  uint64_t seed_;
  bool shuffled_, predicts_next_;
};

}  // namespace

DocumentBoundaries parse_documents(std::span<const std::byte> bytes,
                                   int64_t tokens,
                                   const std::string& name) {
  if (bytes.empty() || bytes.size() % sizeof(uint64_t) != 0)
    throw DataError(
        "{}: has {} bytes; allowed: a positive multiple of 8, a uint64 for each document's first "
        "token",
        name,
        bytes.size());
  DocumentBoundaries boundaries(bytes.size() / sizeof(uint64_t));
  for (size_t i = 0; i < boundaries.size(); ++i) {
    uint64_t boundary;
    std::memcpy(&boundary, bytes.data() + i * sizeof(boundary), sizeof(boundary));
    const int64_t before = i == 0 ? -1 : boundaries[i - 1];
    const auto value = static_cast<int64_t>(std::min<uint64_t>(boundary, INT64_MAX));
    if (i == 0 ? value != 0 : value <= before)
      throw DataError(
          "{}: entry {} is {}; allowed: {}",
          name,
          i,
          boundary,
          i == 0 ? "0, the first token" : fmt::format("above {}, the entry before", before));
    if (value > tokens)
      throw DataError("{}: entry {} is {}; there are {} tokens", name, i, boundary, tokens);
    boundaries[i] = value;
  }
  if (boundaries.back() != tokens) boundaries.push_back(tokens);
  return boundaries;
}

Packing::Packing(const DocumentBoundaries& documents,
                 int64_t context,
                 bool several,
                 const std::string& name,
                 int64_t ahead,
                 const std::function<bool(int64_t)>& wanted)
    : pieces_(cut(documents, context, ahead, wanted)) {
  if (pieces_.empty())
    throw DataError("{}: no document has two tokens, which one prediction needs", name);
  if (pieces_.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    throw DataError(
        "{}: has {} pieces of documents; allowed: up to 2^31 - 1", name, pieces_.size());
  std::ranges::stable_sort(pieces_, std::greater(), &Piece::length);
  first_longer_.assign(static_cast<size_t>(context) + 1, 0);
  for (const Piece& piece : pieces_) {
    inputs_ += piece.length;
    ++first_longer_[static_cast<size_t>(piece.length) - 1];
  }
  std::partial_sum(first_longer_.rbegin(), first_longer_.rend(), first_longer_.rbegin());

  std::vector<int32_t> sample_of(pieces_.size());
  if (several)
    sample_of = best_fit(pieces_, context);
  else
    std::iota(sample_of.begin(), sample_of.end(), 0);
  const auto samples = static_cast<size_t>(*std::ranges::max_element(sample_of)) + 1;
  first_slot_.assign(samples + 1, 0);
  for (const int32_t sample : sample_of) ++first_slot_[static_cast<size_t>(sample) + 1];
  std::partial_sum(first_slot_.begin(), first_slot_.end(), first_slot_.begin());
  std::vector<int64_t> next(first_slot_.begin(), first_slot_.end() - 1);
  slots_.resize(pieces_.size());
  for (size_t slot = 0; slot < sample_of.size(); ++slot)
    slots_[static_cast<size_t>(next[static_cast<size_t>(sample_of[slot])]++)] =
        static_cast<int32_t>(slot);
}

int64_t Packing::resident_bytes() const {
  return static_cast<int64_t>(pieces_.size() * (sizeof(Piece) + sizeof(int32_t)) +
                              (first_longer_.size() + first_slot_.size()) * sizeof(int64_t));
}

std::span<const int32_t> Packing::slots_of(int64_t sample) const {
  const auto begin = static_cast<size_t>(first_slot_[static_cast<size_t>(sample)]);
  const auto end = static_cast<size_t>(first_slot_[static_cast<size_t>(sample) + 1]);
  return std::span(slots_).subspan(begin, end - begin);
}

int64_t Packing::length_of(int64_t sample) const {
  int64_t length = 0;
  for (const int32_t slot : slots_of(sample)) length += stored(slot).length;
  return length;
}

Piece Packing::shuffled(int32_t slot, uint64_t seed, int64_t epoch) const {
  const int64_t length = stored(slot).length;
  // The slots of this length are [begin, end).
  const int64_t begin = first_longer_[static_cast<size_t>(length)];
  const int64_t end = first_longer_[static_cast<size_t>(length) - 1];
  const Sampler order(end - begin, seed_of_length(seed, length), epoch, true);
  return stored(static_cast<int32_t>(begin + order[slot - begin]));
}

void Packing::write_sample(
    const SampleKey& key,
    bool permuted,
    uint64_t seed,
    std::byte* input,
    std::byte* target,
    const std::function<void(const Piece&, int32_t*, int32_t*)>& copy) const {
  auto* const tokens = reinterpret_cast<int32_t*>(input);  // all of these are (T)
  int32_t *const documents = tokens + context(), *const positions = documents + context();
  auto* const targets = reinterpret_cast<int32_t*>(target);
  int64_t t = 0;
  int32_t number = 0;
  for (const int32_t slot : slots_of(key.index)) {
    const Piece piece = permuted ? shuffled(slot, seed, key.epoch) : stored(slot);
    copy(piece, tokens + t, targets + t);
    std::fill_n(documents + t, piece.length, number++);
    std::iota(positions + t, positions + t + piece.length, 0);
    t += piece.length;
  }
  for (int32_t* const zeros : {tokens, positions}) std::fill(zeros + t, zeros + context(), 0);
  for (int32_t* const none : {documents, targets}) std::fill(none + t, none + context(), -1);
}

std::unique_ptr<Dataset> make_packed_dataset(std::shared_ptr<const SourceFile> file,
                                             TokenSequence tokens,
                                             std::shared_ptr<const Packing> packing,
                                             const config::ModelTraits& model,
                                             uint64_t seed,
                                             bool shuffled) {
  return std::make_unique<PackedDataset>(
      std::move(file), tokens, std::move(packing), model, seed, shuffled);
}

}  // namespace lockstep::data
