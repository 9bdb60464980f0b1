#pragma once
// The contents of a SentencePiece .model file, which is a protobuf message. It is parsed here
// without protobuf, because Debian's libsentencepiece contains an older protobuf, which breaks
// programs that link another one.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tokenizer {

struct SentencePieceFile {
  enum class PieceType : uint8_t {
    kNormal = 1,
    kUnknown,
    kControl,      // never part of a text: <s>
    kUserDefined,  // always a token if it occurs in a text
    kUnused,
    kByte  // <0x00> to <0xFF>
  };
  enum class ModelType : uint8_t { kUnigram = 1, kBpe, kWord, kChar };

  struct Piece {
    std::string text;  // valid UTF-8
    float score = 0;
    PieceType type = PieceType::kNormal;
  };

  std::vector<Piece> pieces;  // their indices are their ids
  ModelType model_type = ModelType::kUnigram;
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  std::string bos_piece = "<s>";
  std::string unknown_surface = " \xE2\x81\x87 ";  // the text to which an unknown token decodes
  std::string charsmap;                            // see charsmap.h
  bool add_dummy_prefix = true;                    // adds a space before the text
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;  // spaces are written as U+2581
};

// Throws DataError if the bytes are not such a file, or if the number of unknown pieces is not one.
SentencePieceFile parse_sentencepiece_file(std::string_view bytes, const std::string& name);

}  // namespace lockstep::tokenizer
