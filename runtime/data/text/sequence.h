#pragma once
// Samples for language models, cut from one long sequence of tokens.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/data/dataset.h"
#include "runtime/data/held_out.h"
#include "runtime/data/source_file.h"

namespace lockstep::data {

// A sequence of tokens stored as unsigned little-endian integers, not necessarily aligned.
struct TokenSequence {
  std::span<const std::byte> bytes;
  int token_bytes = 1;  // 1, 2 or 4
  int64_t count() const { return static_cast<int64_t>(bytes.size()) / token_bytes; }
  int64_t operator[](int64_t index) const;
};

// The largest token of a sequence, which must not be empty. Reads all of it.
int64_t largest_token(const TokenSequence& tokens);

// A sequence without its end, and the end.
struct SequenceParts {
  TokenSequence train, eval;
  std::string text;  // for the log
};

// Holds out the end of a sequence. `name`: the file's, `unit`: "tokens" or "bytes", for messages.
// Throws DataError if one of the parts has too few tokens for one sample.
SequenceParts hold_out_end(const HeldOut& held_out,
                           const TokenSequence& tokens,
                           const config::ModelTraits& model,
                           const std::string& name,
                           const std::string& unit);

// Throws DataError if a token is not below `vocabulary`. The message names the first such token and
// the model's field that limits it.
void require_vocabulary(const TokenSequence& tokens,
                        int64_t vocabulary,
                        const config::ModelTraits& model,
                        const std::string& name);

// Sample i is the T + 1 tokens from i * T + shift on, with T = model.context: input (T) i32 is all
// but the last, target (T) i32 all but the first. If the model does not predict the next token, a
// sample is T tokens, and no target is written. With `shifted`, augmented reads use a shift in
// [0, T) that is a pure function of (seed, epoch), so that samples are cut differently in every
// epoch. `file` owns the bytes. Throws DataError if there are too few tokens for one sample.
std::unique_ptr<Dataset> make_sequence_dataset(std::shared_ptr<const SourceFile> file,
                                               TokenSequence tokens,
                                               const config::ModelTraits& model,
                                               uint64_t seed,
                                               bool shifted);

}  // namespace lockstep::data
