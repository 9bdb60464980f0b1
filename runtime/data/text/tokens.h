#pragma once
// Files of token ids, memory-mapped: raw uint16 (nanoGPT's train.bin) and llm.c's .bin.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/data/dataset.h"
#include "runtime/data/text/sequence.h"

namespace lockstep {

// Parses the bytes of a token file; the sequence lies in them. `name` is the file's name for
// messages. Throws DataError on an odd size (raw), and on another magic number or version, or a
// count that does not match the file's size (llm.c), and when there are no tokens.
TokenSequence parse_tokens(std::span<const std::byte> bytes,
                           TokensConfig::Format format,
                           const std::string& name);

// Samples as in sequence.h, shifted from epoch to epoch when shuffling. The vocabulary is
// model.outputs, or else the largest training token + 1; every token is checked against it.
OpenedData open_tokens(const DataConfig& config,
                       const TokensConfig& tokens,
                       const ModelTraits& model,
                       uint64_t seed,
                       bool need_train);

}  // namespace lockstep
