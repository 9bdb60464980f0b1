#pragma once
// Packs documents into samples as long as the model's context.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/source_file.h"
#include "runtime/data/text/sequence.h"

namespace lockstep::data {

// (documents + 1) ascending offsets into a sequence of tokens: where each document begins, and the
// end of the sequence.
using DocumentBoundaries = std::vector<int64_t>;

// Parses a file of document boundaries: the offset of each document's first token as uint64,
// little-endian, ascending from 0. At the end there may be the number of all tokens. `tokens`: that
// number. Throws DataError, which names the file, the entry and what is allowed.
DocumentBoundaries parse_documents(std::span<const std::byte> bytes,
                                   int64_t tokens,
                                   const std::string& name);

// A part of a document: `length` input tokens from `begin` on. The targets are the tokens one
// later.
struct Piece {
  int64_t begin;
  int64_t length;  // 1 to the context
};

// Assigns pieces of documents to samples. A document of n tokens has n - 1 inputs if the model
// predicts the next token, otherwise n. A document with more inputs than the context is cut into
// pieces, of which all but the last fill a sample. A document without inputs is skipped.
//
// The algorithm is best-fit decreasing, a classic heuristic for bin packing: the pieces, longest
// first, each go into the sample with the least remaining room that fits (if several are equal, the
// one changed last). The result depends on lengths alone. So a sample is a list of slots for pieces
// of given lengths. In each epoch, the pieces of each length are permuted over the slots of that
// length, as a pure function of (seed, epoch). Hence the number of samples never changes, and
// documents share their sample with different ones in every epoch.
class Packing {
 public:
  // several: a sample may have more than one piece. ahead: how many tokens at the end of a document
  // are not inputs. wanted: which documents are packed, by their indices; null: all of them. Throws
  // DataError, which names `name`, if there are no pieces.
  Packing(const DocumentBoundaries& documents,
          int64_t context,
          bool several,
          const std::string& name,
          int64_t ahead = 1,
          const std::function<bool(int64_t)>& wanted = nullptr);

  int64_t samples() const { return static_cast<int64_t>(first_slot_.size()) - 1; }
  int64_t pieces() const { return static_cast<int64_t>(pieces_.size()); }
  int64_t inputs() const { return inputs_; }  // of all pieces, in tokens
  int64_t resident_bytes() const;

  // The number of inputs of a sample, which is the same in every epoch.
  int64_t length_of(int64_t sample) const;
  // The slots of a sample, longest first.
  std::span<const int32_t> slots_of(int64_t sample) const;
  // The piece in a slot, without shuffling or as shuffled in an epoch.
  Piece stored(int32_t slot) const { return pieces_[static_cast<size_t>(slot)]; }
  Piece shuffled(int32_t slot, uint64_t seed, int64_t epoch) const;

  // Writes the sample's input (3, T) and target (T), which make_packed_dataset() describes.
  // `permuted`: with the pieces of the epoch. copy(piece, ids, targets) writes those of a piece.
  void write_sample(const SampleKey& key,
                    bool permuted,
                    uint64_t seed,
                    std::byte* input,
                    std::byte* target,
                    const std::function<void(const Piece&, int32_t*, int32_t*)>& copy) const;

 private:
  int64_t context() const { return static_cast<int64_t>(first_longer_.size()) - 1; }

  std::vector<Piece> pieces_;          // (slots) longest first, equal lengths in stored order
  std::vector<int64_t> first_longer_;  // (context + 1) by length: how many pieces are longer
  std::vector<int64_t> first_slot_;    // (samples + 1) offsets into slots_
  std::vector<int32_t> slots_;         // (slots) sample by sample
  int64_t inputs_ = 0;
};

// Samples of packed documents, with T = model.context. Input (3, T) i32: tokens, documents (the
// index of each token's document in the sample) and positions within documents. Target (T) i32,
// only written if the model predicts the next token. In the padding after the last document, tokens
// and positions are 0, documents and targets -1. With `shuffled`, augmented reads use the pieces of
// their epoch. `file` owns the bytes of `tokens`.
std::unique_ptr<Dataset> make_packed_dataset(std::shared_ptr<const SourceFile> file,
                                             TokenSequence tokens,
                                             std::shared_ptr<const Packing> packing,
                                             const config::ModelTraits& model,
                                             uint64_t seed,
                                             bool shuffled);

}  // namespace lockstep::data
