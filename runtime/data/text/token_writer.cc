#include "runtime/data/text/token_writer.h"

#include <bit>

namespace lockstep::data {

static_assert(std::endian::native == std::endian::little);

TokenWriter::TokenWriter(const std::filesystem::path& tokens,
                         const std::filesystem::path& boundaries,
                         uint32_t id_limit)
    : ids_(tokens), boundaries_(boundaries), token_bytes_(token_bytes_for(id_limit)) {
  constexpr uint64_t kFirst = 0;
  boundaries_.write(&kFirst, sizeof(kFirst));
}

void TokenWriter::write(std::span<const uint32_t> ids, std::span<const uint64_t> counts) {
  if (token_bytes_ == 2) {
    narrow_.assign(ids.begin(), ids.end());
    ids_.write(narrow_.data(), narrow_.size() * sizeof(uint16_t));
  } else {
    ids_.write(ids.data(), ids.size_bytes());
  }
  ends_.clear();
  for (const uint64_t count : counts) ends_.push_back(tokens_ += count);
  boundaries_.write(ends_.data(), ends_.size() * sizeof(uint64_t));
  documents_ += counts.size();
}

void TokenWriter::finish() {
  ids_.finish();
  boundaries_.finish();
}

}  // namespace lockstep::data
