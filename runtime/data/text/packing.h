#pragma once
// Documents packed into samples of as many tokens as the model's context.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/source_file.h"
#include "runtime/data/text/sequence.h"

namespace lockstep {

// Where documents begin in a sequence of tokens, and at last its end: ascending, documents + 1.
using DocumentBorders = std::vector<int64_t>;

// Parses the bytes of a file of borders: the number of each document's first token, uint64,
// little-endian, ascending from 0; at its end the number of all tokens, which may be left out.
// Throws DataError that names the file, the entry and what is allowed.
DocumentBorders parse_documents(std::span<const std::byte> bytes,
                                int64_t tokens,
                                const std::string& name);

// Part of a document: `length` tokens from `begin` on are inputs, those one later their targets.
struct Piece {
  int64_t begin;
  int64_t length;  // 1 to the context
};

// Which pieces of documents each sample has. A document of n tokens has n - 1 inputs, where tokens
// predict the next one, else n; one of more than the context is cut into pieces, all but the last of
// which fill a sample; one without inputs is left out.
//
// Best fit, longest first: each piece goes into the sample with the least room that it fits in, the
// one last changed of equals. That depends on lengths alone. So a sample is a list of places for
// pieces of given lengths, and which piece of such a length takes a place is a permutation, a pure
// function of (seed, epoch): samples are as many in every epoch, and documents meet others in each.
class Packing {
 public:
  // several: a sample may have more than one piece. ahead: how many of a document's last tokens are no
  // inputs. Throws DataError, which names `name`, where there is no piece.
  Packing(const DocumentBorders& documents,
          int64_t context,
          bool several,
          const std::string& name,
          int64_t ahead = 1);

  int64_t samples() const { return static_cast<int64_t>(first_place_.size()) - 1; }
  int64_t pieces() const { return static_cast<int64_t>(pieces_.size()); }
  int64_t inputs() const { return inputs_; }  // of all pieces, in tokens
  int64_t resident_bytes() const;

  // Inputs of a sample, in every epoch.
  int64_t length_of(int64_t sample) const;
  // The numbers of a sample's places, longest first.
  std::span<const int32_t> places_of(int64_t sample) const;
  // Which piece is there as stored, or in an epoch.
  Piece stored(int32_t place) const { return pieces_[static_cast<size_t>(place)]; }
  Piece shuffled(int32_t place, uint64_t seed, int64_t epoch) const;

 private:
  std::vector<Piece> pieces_;          // by place: longest first, equals as stored
  std::vector<int64_t> first_longer_;  // by length: how many pieces are longer
  std::vector<int64_t> first_place_;   // by sample, in places_; then its size
  std::vector<int32_t> places_;
  int64_t inputs_ = 0;
};

// Samples of packed documents of model.context, T: input (3, T) i32 has tokens, of each the number
// of its document in the sample, from 0, and its position in it; target (T) i32, which is written only
// for a model that predicts the next token. Behind the last
// document tokens and positions are 0, numbers and targets -1. With `shuffled`, augmented reads take
// the pieces of their epoch. `file` owns the bytes of `tokens`.
std::unique_ptr<Dataset> make_packed_dataset(std::shared_ptr<const SourceFile> file,
                                             TokenSequence tokens,
                                             std::shared_ptr<const Packing> packing,
                                             const ModelTraits& model,
                                             uint64_t seed,
                                             bool shuffled);

}  // namespace lockstep
