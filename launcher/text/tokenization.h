#pragma once
// Converts the documents of files to tokens, on several threads.
//
// Documents are read in order and collected in batches of about a quarter of a megabyte. A few
// batches for each thread are encoded at a time and then written in order, so that the files are
// the same with any number of threads.

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/text/documents.h"
#include "runtime/data/text/token_file.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep::launcher {

struct TokenizationOptions {
  data::DocumentOptions reading;
  bool special_tokens = true;         // the tokens that the tokenizer puts around a text
  std::optional<uint32_t> end_token;  // appended to each document
  // Skip bad lines, count them and log the first ten; otherwise they are errors.
  bool skip_bad_lines = false;
  int threads = 1;
};

class Tokenization {
 public:
  // Borrows the tokenizer and the writer.
  Tokenization(TokenizationOptions options,
               const tokenizer::Tokenizer& tokenizer,
               data::TokenWriter& writer);

  // Appends the documents of files to the writer. Shows the progress: on a terminal as a bar,
  // elsewhere as a line every few seconds. Throws DataError and IoError.
  void run(const std::vector<std::string>& paths);

  int64_t bad_lines() const { return bad_lines_; }
  uint64_t input_bytes() const { return input_bytes_; }

 private:
  struct Batch;

  void tokenize_file(const std::string& path);
  void encode(const data::DocumentReader& reader, const std::string& path, Batch* batch);
  void finish(const Batch& batch);
  void report_progress(const std::string& path, const data::DocumentReader& reader);
  void draw_bar(double done_bytes, double seconds);
  void clear_bar();
  std::unique_ptr<tokenizer::TokenEncoder> take_encoder();
  void give_back(std::unique_ptr<tokenizer::TokenEncoder> encoder);

  TokenizationOptions options_;
  const tokenizer::Tokenizer& tokenizer_;
  data::TokenWriter& writer_;
  std::mutex mutex_;  // guards free_encoders_
  std::vector<std::unique_ptr<tokenizer::TokenEncoder>> free_encoders_;
  int64_t bad_lines_ = 0;
  uint64_t input_bytes_ = 0;
  uint64_t total_file_bytes_ = 0, done_file_bytes_ = 0;
  double start_ms_ = 0, reported_ms_ = 0;
  const bool terminal_;
  bool bar_drawn_ = false;
};

}  // namespace lockstep::launcher
