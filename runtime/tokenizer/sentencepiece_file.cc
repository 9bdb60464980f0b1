#include "runtime/tokenizer/sentencepiece_file.h"

#include <bit>
#include <cstring>
#include <stdexcept>

#include "runtime/base/error.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

// Iterates over the fields of a protobuf message.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  // Reads the next field; returns false at the end. Throws std::invalid_argument.
  bool next() {
    if (rest_.empty()) return false;
    const uint64_t key = varint();
    number_ = static_cast<uint32_t>(key >> 3);
    value_ = 0;
    bytes_ = {};
    switch (key & 7) {
      case 0: value_ = varint(); break;
      case 1: bytes_ = take(8); break;
      case 2: bytes_ = take(varint()); break;
      case 5: bytes_ = take(4); break;
      default: throw std::invalid_argument("not a protobuf message");
    }
    return true;
  }

  uint32_t number() const { return number_; }
  uint64_t value() const { return value_; }
  bool flag() const { return value_ != 0; }
  std::string_view bytes() const { return bytes_; }

  std::string text() const {
    if (valid_utf8_bytes(bytes_) != bytes_.size())
      throw std::invalid_argument("a text is not UTF-8");
    return std::string(bytes_);
  }

  float number_of_32_bits() const {
    static_assert(std::endian::native == std::endian::little);
    float number = 0;
    if (bytes_.size() != sizeof(number)) throw std::invalid_argument("a score is not a float");
    std::memcpy(&number, bytes_.data(), sizeof(number));
    return number;
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw std::invalid_argument("not a protobuf message");
  }

  std::string_view take(uint64_t bytes) {
    if (bytes > rest_.size()) throw std::invalid_argument("truncated");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  std::string_view rest_;
  uint32_t number_ = 0;
  uint64_t value_ = 0;
  std::string_view bytes_;
};

SentencePieceFile::Piece read_piece(std::string_view message) {
  SentencePieceFile::Piece piece;
  for (Fields fields(message); fields.next();) {
    if (fields.number() == 1) piece.text = fields.text();
    if (fields.number() == 2) piece.score = fields.number_of_32_bits();
    if (fields.number() != 3) continue;
    if (fields.value() < 1 || fields.value() > 6)
      throw std::invalid_argument("a piece of an unknown type");
    piece.type = static_cast<SentencePieceFile::PieceType>(fields.value());
  }
  return piece;
}

void read_trainer(std::string_view message, SentencePieceFile* file) {
  for (Fields fields(message); fields.next();) switch (fields.number()) {
      case 3:
        if (fields.value() < 1 || fields.value() > 4)
          throw std::invalid_argument("a model of an unknown type");
        file->model_type = static_cast<SentencePieceFile::ModelType>(fields.value());
        break;
      case 24: file->whitespace_as_suffix = fields.flag(); break;
      case 35: file->byte_fallback = fields.flag(); break;
      case 44: file->unknown_surface = fields.text(); break;
      case 46: file->bos_piece = fields.text(); break;
      default: break;
    }
}

void read_normalizer(std::string_view message, SentencePieceFile* file) {
  for (Fields fields(message); fields.next();) switch (fields.number()) {
      case 2: file->charsmap = fields.bytes(); break;
      case 3: file->add_dummy_prefix = fields.flag(); break;
      case 4: file->remove_extra_whitespaces = fields.flag(); break;
      case 5: file->escape_whitespaces = fields.flag(); break;
      default: break;
    }
}

SentencePieceFile read_model(std::string_view bytes) {
  SentencePieceFile file;
  for (Fields fields(bytes); fields.next();) {
    if (fields.number() == 1) file.pieces.push_back(read_piece(fields.bytes()));
    if (fields.number() == 2) read_trainer(fields.bytes(), &file);
    if (fields.number() == 3) read_normalizer(fields.bytes(), &file);
  }
  size_t unknown = 0;
  for (const SentencePieceFile::Piece& piece : file.pieces)
    unknown += piece.type == SentencePieceFile::PieceType::kUnknown;
  if (unknown != 1)
    throw std::invalid_argument(fmt::format("{} unknown pieces instead of one", unknown));
  return file;
}

}  // namespace

SentencePieceFile parse_sentencepiece_file(std::string_view bytes, const std::string& name) {
  try {
    return read_model(bytes);
  } catch (const std::invalid_argument& error) {
    throw DataError(
        "{}: neither a tokenizer.json nor a SentencePiece model: {}", name, error.what());
  }
}

}  // namespace lockstep::tokenizer
