#pragma once
// Turns the documents of files into tokens, on several threads.
//
// Documents are read in order and gathered in batches of about a quarter of a megabyte. Some
// batches for each thread are encoded at a time and then written in their order, so that the files
// are the same with any number of threads.

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/text/documents.h"
#include "runtime/data/text/token_writer.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep {

struct TokenizationOptions {
  DocumentOptions reading;
  bool special_tokens = true;         // those that the tokenizer puts around a text
  std::optional<uint32_t> end_token;  // after each document
  bool skip_bad_lines = false;  // and count them, and name the first ten; else they are errors
  int threads = 1;
};

class Tokenization {
 public:
  // Refers to the tokenizer and the writer.
  Tokenization(TokenizationOptions options, const Tokenizer& tokenizer, TokenWriter& writer);

  // Appends the documents of files to the writer. Shows how far it is: on a terminal by a bar, elsewhere
  // by a line every few seconds. Throws DataError and IoError.
  void run(const std::vector<std::string>& paths);

  int64_t bad_lines() const { return bad_lines_; }
  uint64_t input_bytes() const { return input_bytes_; }

 private:
  struct Batch;

  void tokenize_file(const std::string& path);
  void encode(const DocumentReader& reader, const std::string& path, Batch* batch);
  void finish(const Batch& batch);
  void report_progress(const std::string& path, const DocumentReader& reader);
  void draw_bar(double done_bytes, double seconds);
  void clear_bar();
  std::unique_ptr<TokenEncoder> take_encoder();
  void give_back(std::unique_ptr<TokenEncoder> encoder);

  TokenizationOptions options_;
  const Tokenizer& tokenizer_;
  TokenWriter& writer_;
  std::mutex mutex_;  // of free_encoders_
  std::vector<std::unique_ptr<TokenEncoder>> free_encoders_;
  int64_t bad_lines_ = 0;
  uint64_t input_bytes_ = 0;
  uint64_t total_file_bytes_ = 0, done_file_bytes_ = 0;
  double start_ms_ = 0, reported_ms_ = 0;
  const bool terminal_;
  bool bar_drawn_ = false;
};

}  // namespace lockstep
