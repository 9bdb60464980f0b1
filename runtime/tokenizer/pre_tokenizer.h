#pragma once
// How a tokenizer cuts a normalized text into words: the pre_tokenizer of tokenizer.json.

#include <memory>
#include <string>
#include <vector>

#include "runtime/tokenizer/growth_limit.h"
#include "runtime/tokenizer/json_place.h"
#include "runtime/tokenizer/text_piece.h"

namespace lockstep {

// The text that a step makes of a piece, until it makes the next.
class MadeText {
 public:
  void begin(GrowthLimit* limit) {
    limit_ = limit;
    bytes_ = 0;
  }
  std::string& emptied() {
    text_.clear();
    return text_;
  }
  // Counts what was made: all of it belongs to one text.
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
  // Passes the parts of a piece that is not empty on to `next`, in order, none of them empty. Where
  // the step makes new text, which is at most some times as long, it stands in `made`.
  virtual void split(TextPiece piece, MadeText& made, PieceSink& next) const = 0;
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

  struct Stage {
    std::string name;
    std::unique_ptr<const PreTokenizerStep> step;
  };

  void add_step(const JsonPlace& place, std::unique_ptr<const PreTokenizerStep> step);

  std::vector<Stage> stages_;
  bool gives_bytes_ = false;
};

// Runs the steps, one piece through all of them before the next. Of one thread at a time; refers to
// the pre-tokenizer and the sink.
class PreTokenizer::Run {
 public:
  Run(const PreTokenizer& steps, PieceSink& last);
  // Before the pieces of a text; the limit must live until the next call.
  void begin(GrowthLimit* limit);
  void split(TextPiece piece);

 private:
  // Takes the pieces of one step and runs the next one.
  class Link final : public PieceSink {
   public:
    Link(const Stage& stage, PieceSink& next) : stage_(stage), next_(next) {}
    void begin(GrowthLimit* limit) {
      limit_ = limit;
      made_.begin(limit);
    }
    void take(TextPiece piece) override {
      limit_->enter(stage_.name);
      limit_->step(piece.text.size() + kStepsOfPiece);
      stage_.step->split(piece, made_, next_);
    }

   private:
    static constexpr size_t kStepsOfPiece = 8;

    const Stage& stage_;
    PieceSink& next_;
    GrowthLimit* limit_ = nullptr;
    MadeText made_;
  };

  std::vector<std::unique_ptr<Link>> links_;  // the last step first
  PieceSink* first_;
};

}  // namespace lockstep
