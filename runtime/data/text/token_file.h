#pragma once
// Files of token ids: raw uint16 (nanoGPT's train.bin), raw uint32, and llm.c's .bin, which has a
// header and uint16 tokens for GPT-2 or uint32 tokens for Llama 3. Raw files are also written.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/file.h"
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

// Tokens are stored with 2 or 4 bytes each, little-endian: the formats RAW_UINT16 and RAW_UINT32 of
// data.tokens. The boundaries are (documents + 1) little-endian uint64: document i has the tokens
// from boundary i up to boundary i + 1. Throws IoError.
class TokenWriter {
 public:
  // Creates or truncates both files. Ids must be below `id_limit`; up to 65536, a token has 2
  // bytes.
  TokenWriter(const std::filesystem::path& tokens,
              const std::filesystem::path& boundaries,
              uint32_t id_limit);

  static int token_bytes_for(uint32_t id_limit) { return id_limit <= 65536 ? 2 : 4; }

  // Appends documents: `ids` are their concatenated ids, `counts` the number of ids of each.
  void write(std::span<const uint32_t> ids, std::span<const uint64_t> counts);
  // Completes both files and flushes them to the disk.
  void finish();

  int token_bytes() const { return token_bytes_; }
  uint64_t tokens() const { return tokens_; }
  uint64_t documents() const { return documents_; }

 private:
  FileWriter ids_;
  FileWriter boundaries_;
  int token_bytes_;
  uint64_t tokens_ = 0, documents_ = 0;
  std::vector<uint16_t> narrow_;
  std::vector<uint64_t> ends_;
};

}  // namespace lockstep::data
