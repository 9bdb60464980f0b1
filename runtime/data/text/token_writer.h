#pragma once
// Writes a file of tokens and a file of document boundaries.

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "runtime/base/file.h"

namespace lockstep::data {

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
