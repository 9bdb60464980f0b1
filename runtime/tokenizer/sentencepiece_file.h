#pragma once
// What a .model file of SentencePiece holds: a protobuf message. It is read here without protobuf:
// Debian's libsentencepiece has an older protobuf within, which breaks a program that has its own.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct SentencePieceFile {
  enum class PieceType : uint8_t {
    kNormal = 1,
    kUnknown,
    kControl,      // never of a text: <s>
    kUserDefined,  // always a token where a text has it
    kUnused,
    kByte  // <0x00> to <0xFF>
  };
  enum class ModelType : uint8_t { kUnigram = 1, kBpe, kWord, kChar };

  struct Piece {
    std::string text;  // valid UTF-8
    float score = 0;
    PieceType type = PieceType::kNormal;
  };

  std::vector<Piece> pieces;  // their places are their ids
  ModelType model_type = ModelType::kUnigram;
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  std::string bos_piece = "<s>";
  std::string unknown_surface = " \xE2\x81\x87 ";  // what an unknown token decodes to
  std::string charsmap;                            // see charsmap.h
  bool add_dummy_prefix = true;                    // a space before the text
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;  // spaces are written as U+2581
};

// Throws DataError where the bytes are no such file, or have no unknown piece, or more than one.
SentencePieceFile parse_sentencepiece_file(std::string_view bytes, const std::string& name);

}  // namespace lockstep
