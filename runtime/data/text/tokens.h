#pragma once
// Files of token ids, memory-mapped: raw uint16 (nanoGPT's train.bin), raw uint32 and llm.c's .bin.

#include <cstddef>
#include <span>
#include <string>

#include "runtime/config/run_config.h"
#include "runtime/data/text/sequence.h"

namespace lockstep {

// Parses the bytes of a token file; the sequence lies in them. `name` is the file's name for
// messages. Throws DataError on a size that is no whole number of tokens (raw), and on another
// magic number or version, or a count that does not match the file's size (llm.c), and when there
// are no tokens.
TokenSequence parse_tokens(std::span<const std::byte> bytes,
                           TokensConfig::Format format,
                           const std::string& name);

}  // namespace lockstep
