#include "runtime/data/text/encoder_threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "runtime/base/threads.h"

namespace lockstep::data {
namespace {

constexpr int64_t kMaxThreads = 32;
constexpr int64_t kBlock = 64;

}  // namespace

EncoderThreads::EncoderThreads(const DataConfig& data, const tokenizer::Tokenizer& tokenizer) {
  const int64_t threads = data.decode_threads > 0
                              ? data.decode_threads
                              : std::min<int64_t>(compute_threads(), kMaxThreads);
  for (int64_t i = 0; i < threads; ++i) encoders_.push_back(tokenizer.encoder());
}

void EncoderThreads::for_each(int64_t count,
                              const std::function<void(tokenizer::TokenEncoder&, int64_t)>& body) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&](tokenizer::TokenEncoder& encoder) {
    try {
      for (int64_t begin; (begin = next.fetch_add(kBlock)) < count;)
        for (int64_t i = begin; i < std::min(begin + kBlock, count); ++i) body(encoder, i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  };
  const auto useful = static_cast<size_t>((count + kBlock - 1) / kBlock);
  std::vector<std::thread> threads;
  try {
    for (size_t i = 1; i < std::min(encoders_.size(), useful); ++i)
      threads.emplace_back(work, std::ref(*encoders_[i]));
  } catch (const std::system_error&) {  // no more threads can be started: fewer do all the work
  }
  work(*encoders_[0]);
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace lockstep::data
