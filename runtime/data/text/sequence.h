#pragma once
// Language-model samples cut from one long sequence of tokens.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/data/dataset.h"
#include "runtime/data/source_file.h"

namespace lockstep {

// A sequence of tokens stored as unsigned little-endian integers, not necessarily aligned.
struct TokenSequence {
  std::span<const std::byte> bytes;
  int token_bytes = 1;  // 1, 2 or 4
  int64_t count() const { return static_cast<int64_t>(bytes.size()) / token_bytes; }
  int64_t operator[](int64_t index) const;
};

// The largest token of a sequence that is not empty. One pass over its memory.
int64_t largest_token(const TokenSequence& tokens);

// Throws DataError that names the first token which is not below `vocabulary`, and the model's
// field that limits it.
void check_vocabulary(const TokenSequence& tokens,
                      int64_t vocabulary,
                      const ModelTraits& model,
                      const std::string& name);

// Of the model's context: sample i is the context + 1 tokens from i * context + shift on, input (T)
// i32 all but the last, target (T) i32 all but the first. For a model that predicts something else
// than the next token it is context tokens, and no target is written. With `shifted`, augmented reads begin at
// a shift in [0, context) that is a pure function of (seed, epoch), so that sample borders move
// from epoch to epoch. `file` owns the bytes. Throws DataError when there are too few tokens for
// one sample.
std::unique_ptr<Dataset> make_sequence_dataset(std::shared_ptr<const SourceFile> file,
                                               TokenSequence tokens,
                                               const ModelTraits& model,
                                               uint64_t seed,
                                               bool shifted);

}  // namespace lockstep
