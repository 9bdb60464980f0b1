#include "launcher/text/tokenization.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "launcher/data/threads.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/streams.h"
#include "runtime/base/time.h"

namespace lockstep::launcher {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBatchBytes = 256 << 10;  // at least, except at the end of a file
constexpr size_t kBatchesPerThread = 4;
constexpr double kProgressMs = 5000, kBarMs = 200;
constexpr int64_t kMaxNamed = 10;  // bad lines that get a warning each

}  // namespace

namespace {

bool is_terminal(int fd) {
  const char* kind = std::getenv("TERM");
  return ::isatty(fd) == 1 && !(kind != nullptr && std::strcmp(kind, "dumb") == 0);
}

}  // namespace

// Documents of one file and their tokens.
struct Tokenization::Batch {
  std::vector<data::RawDocument> documents;
  size_t bytes = 0;
  std::vector<uint32_t> ids;
  std::vector<uint64_t> counts;       // number of ids of each document
  std::vector<std::string> problems;  // "file:line: reason" for skipped documents

  // Returns whether there was anything left to read.
  bool fill(data::DocumentReader& reader) {
    *this = {};
    data::RawDocument document;
    while (bytes < kBatchBytes && reader.next(&document)) {
      bytes += document.bytes.size() + document.cell.size() + 1;
      documents.push_back(std::move(document));
    }
    return !documents.empty();
  }
};

Tokenization::Tokenization(TokenizationOptions options,
                           const tokenizer::Tokenizer& tokenizer,
                           data::TokenWriter& writer)
    : options_(std::move(options)),
      tokenizer_(tokenizer),
      writer_(writer),
      terminal_(is_terminal(STDERR_FILENO)) {}

void Tokenization::run(const std::vector<std::string>& paths) {
  start_ms_ = reported_ms_ = now_ms();
  for (const std::string& path : paths) total_file_bytes_ += fs::file_size(path);
  for (const std::string& path : paths) {
    tokenize_file(path);
    done_file_bytes_ += fs::file_size(path);
  }
  clear_bar();
}

void Tokenization::tokenize_file(const std::string& path) {
  data::DocumentReader reader(path, options_.reading);
  std::vector<Batch> batches(kBatchesPerThread * static_cast<size_t>(options_.threads));
  while (true) {
    size_t filled = 0;
    while (filled < batches.size() && batches[filled].fill(reader)) ++filled;
    if (filled == 0) return;
    for_each_in_threads(0, static_cast<int64_t>(filled), options_.threads, [&](int64_t i) {
      encode(reader, path, &batches[static_cast<size_t>(i)]);
    });
    for (size_t i = 0; i < filled; ++i) finish(batches[i]);
    report_progress(path, reader);
  }
}

std::unique_ptr<tokenizer::TokenEncoder> Tokenization::take_encoder() {
  const std::lock_guard lock(mutex_);
  if (free_encoders_.empty()) return tokenizer_.encoder();
  auto encoder = std::move(free_encoders_.back());
  free_encoders_.pop_back();
  return encoder;
}

void Tokenization::give_back(std::unique_ptr<tokenizer::TokenEncoder> encoder) {
  const std::lock_guard lock(mutex_);
  free_encoders_.push_back(std::move(encoder));
}

void Tokenization::encode(const data::DocumentReader& reader,
                          const std::string& path,
                          Batch* batch) {
  auto encoder = take_encoder();
  std::string held;
  for (data::RawDocument& document : batch->documents) {
    const size_t before = batch->ids.size();
    const auto name_problem = [&](std::string_view problem) {
      const bool whole_file = document.line == 0;
      batch->problems.push_back(whole_file
                                    ? fmt::format("{}: {}", path, problem)
                                    : fmt::format("{}:{}: {}", path, document.line, problem));
    };
    const auto text = reader.text_of(&document, &held);
    if (!text) {
      name_problem(document.problem);
      continue;
    }
    if (text->empty()) continue;
    try {
      encoder->encode(*text, options_.special_tokens, &batch->ids);
    } catch (const DataError& error) {
      batch->ids.resize(before);
      name_problem(error.what());
      continue;
    }
    if (options_.end_token) batch->ids.push_back(*options_.end_token);
    batch->counts.push_back(batch->ids.size() - before);
  }
  give_back(std::move(encoder));
}

// Called for the batches in order, so that the first bad line is the one that is reported.
void Tokenization::finish(const Batch& batch) {
  if (!batch.problems.empty()) clear_bar();
  for (const std::string& problem : batch.problems) {
    if (!options_.skip_bad_lines)
      throw DataError("{} (--bad-lines skip leaves such lines out)", problem);
    if (++bad_lines_ <= kMaxNamed) log_warn("{}: left out", problem);
  }
  input_bytes_ += batch.bytes;
  writer_.write(batch.ids, batch.counts);
}

void Tokenization::report_progress(const std::string& path, const data::DocumentReader& reader) {
  const double now = now_ms();
  if (now - reported_ms_ < (terminal_ ? kBarMs : kProgressMs)) return;
  reported_ms_ = now;
  const double in_file = static_cast<double>(fs::file_size(path)) *
                         static_cast<double>(reader.passed_bytes()) /
                         static_cast<double>(std::max<uint64_t>(reader.total_bytes(), 1));
  const double done = static_cast<double>(done_file_bytes_) + in_file;
  const double seconds = (now - start_ms_) / 1e3;
  if (terminal_) return draw_bar(done, seconds);
  log_info("{:.1f} of {:.1f} MB, {} documents, {:.1f} million tokens, {:.1f} MB/s",
           done / 1e6,
           static_cast<double>(total_file_bytes_) / 1e6,
           writer_.documents(),
           static_cast<double>(writer_.tokens()) / 1e6,
           done / 1e6 / seconds);
}

void Tokenization::draw_bar(double done_bytes, double seconds) {
  constexpr int kWidth = 30;
  const double share =
      std::min(1.0, done_bytes / std::max(1.0, static_cast<double>(total_file_bytes_)));
  const int full = static_cast<int>(share * kWidth);
  standard_error().add(STDERR_FILENO,
                       fmt::format("\r[{:=<{}}{: <{}}] {:3.0f}%  {:.1f} MB/s, {:.0f} s left\x1b[K",
                                   "",
                                   full,
                                   "",
                                   kWidth - full,
                                   100 * share,
                                   done_bytes / 1e6 / seconds,
                                   share > 0 ? seconds * (1 - share) / share : 0),
                       OutputQueue::Kind::kRedraw);
  bar_drawn_ = true;
}

// Clears the progress bar, so that other output starts on an empty line.
void Tokenization::clear_bar() {
  if (!bar_drawn_) return;
  print_log("\r\x1b[K");
  bar_drawn_ = false;
}

}  // namespace lockstep::launcher
