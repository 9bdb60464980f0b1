#include "runtime/data/text/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"

namespace lockstep::data {
namespace {

// llm.c's files begin with 256 int32: a magic number, a version, and for tokens their count.
struct LlmcTokens {
  int32_t magic, version;
  int token_bytes;
  const char* model;
};
constexpr LlmcTokens kLlmcTokens[] = {{20240520, 1, 2, "GPT-2"}, {20240801, 7, 4, "Llama 3"}};
constexpr const char* kLlmcAllowed = "20240520 (GPT-2, uint16) or 20240801 (Llama 3, uint32)";

struct LlmcOther {
  int32_t magic;
  const char* what;
};
constexpr LlmcOther kLlmcOthers[] = {{20240326, "the weights of GPT-2"},
                                     {20240327, "a debug state"},
                                     {20240328, "a tokenizer"},
                                     {20240522, "multiple-choice questions"},
                                     {20240803, "the weights of Llama 3"}};

constexpr size_t kHeaderBytes = 256 * sizeof(int32_t);

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The first numbers of llm.c's header; zeros if the file is shorter.
struct LlmcHeader {
  explicit LlmcHeader(std::span<const std::byte> bytes) {
    if (bytes.size() >= kHeaderBytes) std::memcpy(this, bytes.data(), sizeof(*this));
  }
  int32_t magic = 0, version = 0;
  uint32_t count = 0;  // written as int32, but read as unsigned to support more than 2^31 tokens
};

const LlmcTokens* tokens_of(const LlmcHeader& header) {
  const auto* const found = std::ranges::find(kLlmcTokens, header.magic, &LlmcTokens::magic);
  return found == std::end(kLlmcTokens) ? nullptr : found;
}

// Throws DataError if a file is known as one of another format. Only long signatures decide: any
// two bytes may be a token.
void refuse_other_formats(std::string_view text, const std::string& name) {
  static const std::vector<std::string> kOthers = words_of(
      "npy npz torch zip safetensors hdf5 lfs parquet arrow html zstd xz gguf sqlite pdf tar "
      "xlsx");
  constexpr size_t kMinTextBytes = 32;  // fewer may be tokens by chance
  const std::string_view id = file_kind(text).id;
  const bool known =
      std::ranges::count(kOthers, id) > 0 || (id == "gzip" && has_suffix(name, ".gz"));
  const bool words = id.empty() && text.size() >= kMinTextBytes && is_text(text);
  if (!known && !words) return;
  throw DataError("{}: {}{}",
                  name,
                  is_not(text, "a file of tokens"),
                  words ? "; `lockstep data tokenize` makes tokens of text" : "");
}

[[noreturn]] void refuse_as_llmc(std::span<const std::byte> bytes,
                                 const LlmcHeader& header,
                                 const std::string& name) {
  for (const LlmcOther& other : kLlmcOthers)
    if (header.magic == other.magic)
      throw DataError("{}: is llm.c's file with {} (magic number {}), not with tokens",
                      name,
                      other.what,
                      other.magic);
  refuse_other_formats(text_of(bytes), name);
  if (bytes.size() < kHeaderBytes)
    throw DataError(
        "{}: {} bytes are too few for the header of {}", name, bytes.size(), kHeaderBytes);
  throw DataError(
      "{}: begins with {}, not with a magic number of llm.c's tokens; allowed: {}; for a file "
      "without a header set data.tokens.format to RAW_UINT16 or RAW_UINT32",
      name,
      header.magic,
      kLlmcAllowed);
}

TokenSequence parse_llmc(std::span<const std::byte> bytes, const std::string& name) {
  const LlmcHeader header(bytes);
  const LlmcTokens* const kind = tokens_of(header);
  if (kind == nullptr) refuse_as_llmc(bytes, header, name);
  if (header.version != kind->version)
    throw DataError("{}: has version {} of llm.c's format for {}; allowed: {}",
                    name,
                    header.version,
                    kind->model,
                    kind->version);
  const auto body = bytes.subspan(kHeaderBytes);
  const uint64_t promised = uint64_t{header.count} * static_cast<uint64_t>(kind->token_bytes);
  if (promised != body.size())
    throw DataError(
        "{}: {}: the header promises {} tokens of {} bytes, the file has {} bytes of tokens",
        name,
        promised > body.size() ? "truncated" : "too long",
        header.count,
        kind->token_bytes,
        body.size());
  return {body, kind->token_bytes};
}

// Throws DataError if a file of raw tokens has llm.c's header, or is of another format.
void refuse_other_than_raw(std::span<const std::byte> bytes, const std::string& name) {
  const LlmcHeader header(bytes);
  const LlmcTokens* const kind = tokens_of(header);
  if (kind != nullptr && kind->version == header.version)
    throw DataError(
        "{}: has the header of llm.c's tokens for {} (it begins with {}); set data.tokens.format "
        "to LLMC",
        name,
        kind->model,
        kind->magic);
  refuse_other_formats(text_of(bytes), name);
}

}  // namespace

TokenSequence parse_tokens(std::span<const std::byte> bytes,
                           TokensConfig::Format format,
                           const std::string& name) {
  TokenSequence sequence;
  if (format == TokensConfig::Format::kLlmc) {
    sequence = parse_llmc(bytes, name);
  } else {
    refuse_other_than_raw(bytes, name);
    sequence = {bytes, format == TokensConfig::Format::kRawUint32 ? 4 : 2};
    if (bytes.size() % static_cast<size_t>(sequence.token_bytes) != 0)
      throw DataError("{}: has {} bytes; a file of {}-bit tokens must have a multiple of {}",
                      name,
                      bytes.size(),
                      8 * sequence.token_bytes,
                      sequence.token_bytes);
  }
  if (sequence.bytes.empty()) throw DataError("{}: has no tokens", name);
  return sequence;
}

std::string describe_narrow_tokens(const TokenSequence& sequence, const std::string& name) {
  constexpr int64_t kMinPairs = 16, kMaxPairs = 4096;
  constexpr int64_t kUpperHalf = 4;  // ids below 262144, of which tokens are the halves
  constexpr int64_t kSmall = 16;
  const int64_t pairs = std::min(sequence.count() / 2, kMaxPairs);
  int64_t large = 0;
  for (int64_t i = 0; i < pairs; ++i) {
    if (sequence[2 * i + 1] >= kUpperHalf) return "";
    if (sequence[2 * i] >= kSmall) ++large;
  }
  if (pairs < kMinPairs || large < pairs / 4) return "";
  const bool is_16_bit = sequence.token_bytes == 2;
  return fmt::format(
      "{}: every second token is near 0, as if a token had {} bits; {}",
      name,
      is_16_bit ? 32 : 64,
      is_16_bit ? "set data.tokens.format to RAW_UINT32" : "write tokens as uint32, not as int64");
}

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
