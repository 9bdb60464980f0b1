#pragma once
// Writes a file of tokens, and beside it where its documents begin.

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "runtime/base/file.h"

namespace lockstep {

// The tokens lie one after the other, 2 or 4 bytes each, little-endian: formats RAW_UINT16 and
// RAW_UINT32 of data.tokens. The borders are one number more than there are documents, 8 bytes
// each, little-endian: document i has the tokens from border i up to border i + 1. Throws IoError.
class TokenWriter {
 public:
  // Makes or empties both files. `id_limit`: one more than the largest id; up to 65536 a token has
  // 2 bytes.
  TokenWriter(const std::filesystem::path& tokens,
              const std::filesystem::path& borders,
              uint32_t id_limit);

  static int token_bytes_for(uint32_t id_limit) { return id_limit <= 65536 ? 2 : 4; }

  // Appends documents: their ids, one after the other, and how many each has.
  void write(std::span<const uint32_t> ids, std::span<const uint64_t> counts);
  // Both files are whole, and on the disk.
  void finish();

  int token_bytes() const { return token_bytes_; }
  uint64_t tokens() const { return tokens_; }
  uint64_t documents() const { return documents_; }

 private:
  FileWriter ids_;
  FileWriter borders_;
  int token_bytes_;
  uint64_t tokens_ = 0, documents_ = 0;
  std::vector<uint16_t> narrow_;
  std::vector<uint64_t> ends_;
};

}  // namespace lockstep
