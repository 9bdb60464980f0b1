#pragma once
// Splits a normalized text into words: the pre_tokenizer of tokenizer.json.

#include <memory>
#include <string>
#include <vector>

#include "runtime/tokenizer/growth_limit.h"
#include "runtime/tokenizer/json_node.h"
#include "runtime/tokenizer/text_piece.h"

namespace lockstep::tokenizer {

// The text that a step makes for a piece. It is valid until the step's next piece.
class PieceBuffer {
 public:
  void begin(GrowthLimit* limit) {
    limit_ = limit;
    bytes_ = 0;
  }
  std::string& cleared() {
    text_.clear();
    return text_;
  }
  // Counts the text towards the limit: all pieces belong to one text.
  const std::string& finished() {
    bytes_ += text_.size();
    limit_->check(bytes_);
    return text_;
  }

 private:
  std::string text_;
  GrowthLimit* limit_ = nullptr;
  size_t bytes_ = 0;
};

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  // Passes the parts of `piece`, which is not empty, to `next` in order, none of them empty. If the
  // step makes new text, at most a few times as long, that text is stored in `buffer`.
  virtual void split(TextPiece piece, PieceBuffer& buffer, PieceSink& next) const = 0;
};

// The character that represents each byte in a byte-level vocabulary, as UTF-8.
const std::string* byte_level_chars();  // [256]

// Converts such characters back to bytes. Returns false, with no bytes, if a character represents
// none.
bool bytes_of_byte_level(std::string_view text, std::string* bytes);

// Applies steps one after the other.
class PreTokenizer {
 public:
  // Reads the member "pre_tokenizer"; null leaves the text unsplit. Throws DataError if a step is
  // not supported. If `bytes_wanted`, and the last step only replaces each byte by its character,
  // that step is left out, and the pieces are the bytes themselves.
  PreTokenizer(const JsonNode& node, bool bytes_wanted);

  // Whether pieces are bytes instead of the characters that represent them.
  bool gives_bytes() const { return gives_bytes_; }

  // The state with which a thread runs the steps.
  class Run;

 private:
  void add(const JsonNode& node);
  void add_byte_level(const JsonNode& node);

  struct Stage {
    std::string name;
    std::unique_ptr<const PreTokenizerStep> step;
  };

  void add_step(const JsonNode& node, std::unique_ptr<const PreTokenizerStep> step);

  std::vector<Stage> stages_;
  bool gives_bytes_ = false;
};

// Runs the steps; each piece passes through all of them before the next one. Used by one thread at
// a time. Refers to the pre-tokenizer and the sink.
class PreTokenizer::Run {
 public:
  Run(const PreTokenizer& steps, PieceSink& last);
  // Call this before the pieces of a text. The limit must live until the next call.
  void begin(GrowthLimit* limit);
  void split(TextPiece piece);

 private:
  // Receives the pieces of one step and runs the next step.
  class Link final : public PieceSink {
   public:
    Link(const Stage& stage, PieceSink& next) : stage_(stage), next_(next) {}
    void begin(GrowthLimit* limit) {
      limit_ = limit;
      buffer_.begin(limit);
    }
    void take(TextPiece piece) override {
      limit_->enter(stage_.name);
      limit_->step(piece.text.size() + kStepsOfPiece);
      stage_.step->split(piece, buffer_, next_);
    }

   private:
    static constexpr size_t kStepsOfPiece = 8;

    const Stage& stage_;
    PieceSink& next_;
    GrowthLimit* limit_ = nullptr;
    PieceBuffer buffer_;
  };

  std::vector<std::unique_ptr<Link>> links_;  // the last step first
  PieceSink* first_;
};

}  // namespace lockstep::tokenizer
