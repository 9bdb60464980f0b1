#pragma once
// Threads that tokenise the texts of a data set when it is opened.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/config/run_config.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep::data {

class EncoderThreads {
 public:
  // Uses data.decode_threads threads, or if that is 0, as many as the process has CPUs, up to 32.
  // Borrows `tokenizer`.
  EncoderThreads(const DataConfig& data, const tokenizer::Tokenizer& tokenizer);

  // Calls body(encoder, index) for each index in [0, count), on any thread and in any order.
  // Rethrows an exception of `body`.
  void for_each(int64_t count, const std::function<void(tokenizer::TokenEncoder&, int64_t)>& body);

 private:
  std::vector<std::unique_ptr<tokenizer::TokenEncoder>> encoders_;  // (threads)
};

}  // namespace lockstep::data
