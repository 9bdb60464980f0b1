#pragma once
// Threads that tokenise texts when a data set is opened.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/config/run_config.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep {

class EncoderThreads {
 public:
  // As many as data.decode_threads or, where that is 0, as this process has CPUs. Borrows `tokenizer`.
  EncoderThreads(const DataConfig& data, const Tokenizer& tokenizer);

  // Calls body(encoder, index) for each index in [0, count), on any thread and in any order. Rethrows
  // what one of them throws.
  void for_each(int64_t count, const std::function<void(TokenEncoder&, int64_t)>& body);

 private:
  std::vector<std::unique_ptr<TokenEncoder>> encoders_;  // of each thread
};

}  // namespace lockstep
