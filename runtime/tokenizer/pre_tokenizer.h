#pragma once
// How a tokenizer cuts a normalized text into words: the pre_tokenizer of tokenizer.json.

#include <memory>
#include <string>
#include <vector>

#include "runtime/tokenizer/json_place.h"
#include "runtime/tokenizer/text_piece.h"

namespace lockstep {

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  // Passes the parts of a piece that is not empty on to `next`, in order, none of them empty. Where
  // the step makes new text it stands in `buffer`, until the call returns.
  virtual void split(TextPiece piece, std::string& buffer, PieceSink& next) const = 0;
};

// The character that stands for each byte in a byte-level vocabulary, as UTF-8.
const std::string* byte_level_chars();  // [256]

// The bytes that such characters stand for; false, and no bytes, where one stands for none.
bool bytes_of_byte_level(std::string_view text, std::string* bytes);

// One step after the other.
class PreTokenizer {
 public:
  // Of the member "pre_tokenizer"; a null leaves the text whole. Throws DataError on what is not
  // known. Where the last step would write each byte as its character and `bytes_wanted`, the
  // pieces are the bytes themselves.
  PreTokenizer(const JsonPlace& place, bool bytes_wanted);

  // Whether pieces are bytes that stand for characters.
  bool gives_bytes() const { return gives_bytes_; }

  // What a thread needs to run the steps.
  class Run;

 private:
  void add(const JsonPlace& place);
  void add_byte_level(const JsonPlace& place);

  std::vector<std::unique_ptr<const PreTokenizerStep>> steps_;
  bool gives_bytes_ = false;
};

// Runs the steps, one piece through all of them before the next. Of one thread at a time; refers to
// the pre-tokenizer and the sink.
class PreTokenizer::Run {
 public:
  Run(const PreTokenizer& steps, PieceSink& last);
  void split(TextPiece piece);

 private:
  // Takes the pieces of one step and runs the next one.
  class Link final : public PieceSink {
   public:
    Link(const PreTokenizerStep& step, PieceSink& next) : step_(step), next_(next) {}
    void take(TextPiece piece) override { step_.split(piece, buffer_, next_); }

   private:
    const PreTokenizerStep& step_;
    PieceSink& next_;
    std::string buffer_;
  };

  std::vector<std::unique_ptr<Link>> links_;  // the last step first
  PieceSink* first_;
};

}  // namespace lockstep
