#pragma once
// Memory-mapped files of token ids: raw uint16 (nanoGPT's train.bin), raw uint32, and llm.c's .bin,
// which has a header and uint16 tokens for GPT-2 or uint32 tokens for Llama 3.

#include <cstddef>
#include <span>
#include <string>

#include "runtime/config/run_config.h"
#include "runtime/data/text/sequence.h"

namespace lockstep::data {

// Parses a token file. The sequence points into `bytes`. `name`: the file's, for messages. Throws
// DataError if there are no tokens; for raw formats, if the size is not a multiple of a token's;
// for llm.c's format, if the magic number or version differs, or if the count does not match the
// file's size; if the file is known as one of another format.
TokenSequence parse_tokens(std::span<const std::byte> bytes,
                           TokensConfig::Format format,
                           const std::string& name);

// A warning if the tokens are probably twice as wide as the format says: every second one is then
// the upper half of a number, which is 0 or little more. Otherwise "".
std::string describe_narrow_tokens(const TokenSequence& sequence, const std::string& name);

}  // namespace lockstep::data
