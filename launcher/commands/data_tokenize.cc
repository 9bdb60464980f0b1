// lockstep data tokenize --tokenizer FILE|DIR --out DIR INPUT...
//
// Documents are read in order and gathered in batches of about a quarter of a megabyte. Some
// batches for each thread are encoded at a time and then written in their order, so that the files
// are the same with any number of threads.
#include <fmt/core.h>

#include <cstdio>
#include <filesystem>
#include <mutex>
#include <utility>

#include "collectives/agreement.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/data.h"
#include "launcher/commands/results.h"
#include "launcher/common_options.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/data/text/documents.h"
#include "runtime/data/text/token_writer.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBatchBytes = 256 << 10;  // at least, but at the end of a file
constexpr size_t kBatchesPerThread = 4;
constexpr double kProgressMs = 5000;
constexpr int64_t kMostNamed = 10;  // bad lines that get a warning each

struct TokenizeOptions {
  CommonOptions common;  // --json and --log-level
  std::vector<std::string> inputs;
  std::string tokenizer, out, name = "train", format = "auto", documents = "file", end_token,
                              bad_lines = "fail";
  DocumentOptions reading;
  bool no_special = false;
  int threads = 0;
};

// Documents of one file, and what becomes of them.
struct Batch {
  std::vector<RawDocument> documents;
  size_t bytes = 0;
  std::vector<uint32_t> ids;
  std::vector<uint64_t> counts;       // of each document's ids
  std::vector<std::string> problems;  // "line: why" of those left out
};

// Encoders that no thread is using.
class EncoderPool {
 public:
  explicit EncoderPool(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  std::unique_ptr<TokenEncoder> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return tokenizer_.encoder();
    auto encoder = std::move(free_.back());
    free_.pop_back();
    return encoder;
  }

  void give_back(std::unique_ptr<TokenEncoder> encoder) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(encoder));
  }

 private:
  const Tokenizer& tokenizer_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<TokenEncoder>> free_;
};

class Tokenization {
 public:
  Tokenization(const TokenizeOptions& options, const Tokenizer& tokenizer, TokenWriter& writer)
      : options_(options),
        writer_(writer),
        encoders_(tokenizer),
        threads_(choose_data_threads(options.threads)) {
    if (options.end_token.empty()) return;
    end_token_ = tokenizer.id_of(options.end_token);
    if (!end_token_)
      throw ConfigError("--end-token: value is '{}'; allowed: a token of {}",
                        options.end_token,
                        options.tokenizer);
  }

  void run() {
    for (const std::string& path : options_.inputs) total_bytes_ += fs::file_size(path);
    for (const std::string& path : options_.inputs) {
      tokenize_file(path);
      file_bytes_done_ += fs::file_size(path);
    }
  }

  int64_t bad_lines() const { return bad_lines_; }
  uint64_t text_bytes() const { return text_bytes_; }

 private:
  void tokenize_file(const std::string& path) {
    DocumentReader reader(path, options_.reading);
    std::vector<Batch> batches(kBatchesPerThread * static_cast<size_t>(threads_));
    while (true) {
      size_t filled = 0;
      while (filled < batches.size() && fill(reader, &batches[filled])) ++filled;
      if (filled == 0) return;
      for_each_in_threads(0, static_cast<int64_t>(filled), threads_, [&](int64_t i) {
        encode(reader, path, &batches[static_cast<size_t>(i)]);
      });
      for (size_t i = 0; i < filled; ++i) finish(batches[i]);
      report_progress(path, reader);
    }
  }

  static bool fill(DocumentReader& reader, Batch* batch) {
    *batch = {};
    RawDocument document;
    while (batch->bytes < kBatchBytes && reader.next(&document)) {
      batch->bytes += document.bytes.size() + document.cell.size() + 1;
      batch->documents.push_back(std::move(document));
    }
    return !batch->documents.empty();
  }

  void encode(const DocumentReader& reader, const std::string& path, Batch* batch) {
    auto encoder = encoders_.take();
    std::string held;
    for (RawDocument& document : batch->documents) {
      const size_t before = batch->ids.size();
      const auto text = reader.text_of(&document, &held);
      if (!text) {
        batch->problems.push_back(fmt::format("{}:{}: {}", path, document.line, document.problem));
        continue;
      }
      if (text->empty()) continue;
      encoder->encode(*text, !options_.no_special, &batch->ids);
      if (end_token_) batch->ids.push_back(*end_token_);
      batch->counts.push_back(batch->ids.size() - before);
    }
    encoders_.give_back(std::move(encoder));
  }

  // Of the batches in their order: so the first bad line is the one that is named.
  void finish(const Batch& batch) {
    for (const std::string& problem : batch.problems) {
      if (options_.bad_lines == "fail")
        throw DataError("{} (--bad-lines skip leaves such lines out)", problem);
      if (++bad_lines_ <= kMostNamed) log_warn("{}: left out", problem);
    }
    text_bytes_ += batch.bytes;
    writer_.write(batch.ids, batch.counts);
  }

  void report_progress(const std::string& path, const DocumentReader& reader) {
    const double now = now_ms();
    if (now - reported_ms_ < kProgressMs) return;
    reported_ms_ = now;
    const double in_file = static_cast<double>(fs::file_size(path)) *
                           static_cast<double>(reader.passed_bytes()) /
                           static_cast<double>(std::max<uint64_t>(reader.total_bytes(), 1));
    const double done = static_cast<double>(file_bytes_done_) + in_file;
    const double seconds = (now - start_ms_) / 1e3;
    log_info("{:.1f} of {:.1f} MB, {} documents, {:.1f} million tokens, {:.1f} MB/s",
             done / 1e6,
             static_cast<double>(total_bytes_) / 1e6,
             writer_.documents(),
             static_cast<double>(writer_.tokens()) / 1e6,
             done / 1e6 / seconds);
  }

  const TokenizeOptions& options_;
  TokenWriter& writer_;
  EncoderPool encoders_;
  int threads_;
  std::optional<uint32_t> end_token_;
  int64_t bad_lines_ = 0;
  uint64_t text_bytes_ = 0, total_bytes_ = 0, file_bytes_done_ = 0;
  double start_ms_ = now_ms(), reported_ms_ = now_ms();
};

void print_summary(const Json& summary, const std::string& path, double seconds) {
  const auto bytes = summary["text_bytes"].get<double>();
  const auto bad = summary["bad_lines"].get<int64_t>();
  fmt::print(
      "{}: {} tokens of {} bytes, {} documents, {:.1f} MB of text, in {:.1f} s ({:.1f} MB/s){}\n",
      path,
      summary["tokens"].get<int64_t>(),
      summary["token_bytes"].get<int64_t>(),
      summary["documents"].get<int64_t>(),
      bytes / 1e6,
      seconds,
      bytes / 1e6 / seconds,
      bad > 0 ? fmt::format("; {} bad lines left out", bad) : "");
  fmt::print("data {{ tokens {{ train: \"{}\"{} }} }}   # vocabulary {}\n",
             path,
             summary["token_bytes"].get<int64_t>() == 4 ? " format: RAW_UINT32" : "",
             summary["vocabulary"].get<int64_t>());
  std::fflush(stdout);
}

// Reads, encodes and writes, under temporary names; the summary.
Json write_files(const TokenizeOptions& options,
                 const Tokenizer& tokenizer,
                 const fs::path& tokens,
                 const fs::path& borders) {
  TokenWriter writer(tokens, borders, tokenizer.id_limit());
  Tokenization work(options, tokenizer, writer);
  work.run();
  if (writer.tokens() == 0) throw DataError("{}: no text in it", options.inputs[0]);
  writer.finish();
  Json summary;
  summary["tokens"] = writer.tokens();
  summary["documents"] = writer.documents();
  summary["token_bytes"] = writer.token_bytes();
  summary["vocabulary"] = tokenizer.id_limit();
  summary["tokenizer"] = options.tokenizer;
  summary["end_token"] = options.end_token;
  summary["text_bytes"] = work.text_bytes();
  summary["bad_lines"] = work.bad_lines();
  return summary;
}

DocumentOptions reading_of(const TokenizeOptions& options) {
  DocumentOptions reading = options.reading;
  reading.blank_lines = options.documents == "blank-line";
  if (options.documents == "line") reading.separator = "\n";
  if (options.documents != "file" && !options.reading.separator.empty())
    throw ConfigError(
        "--document-separator: given together with --documents {}; allowed: one of the two",
        options.documents);
  if (options.format == "text") reading.format = DocumentFormat::kText;
  if (options.format == "jsonl") reading.format = DocumentFormat::kJsonLines;
  if (options.format == "csv") reading.format = DocumentFormat::kCsv;
  if (options.format == "tsv") reading.format = DocumentFormat::kTsv;
  return reading;
}

void check_inputs(const TokenizeOptions& options) {
  if (options.name.empty() || options.name.find('/') != std::string::npos)
    throw ConfigError("--name: value is '{}'; allowed: a file's name without '/'", options.name);
  for (const std::string& path : options.inputs)
    if (!fs::is_regular_file(path)) throw DataError("{}: no such file", path);
}

void tokenize_all(TokenizeOptions options) {
  options.reading = reading_of(options);
  check_inputs(options);
  check_result_path("--json", options.common.json);
  const double start_ms = now_ms();
  const auto tokenizer = open_tokenizer(options.tokenizer);
  std::error_code problem;
  fs::create_directories(options.out, problem);
  if (problem) throw IoError("create", options.out, problem.value());
  const fs::path tokens = fs::path(options.out) / (options.name + ".bin");
  const fs::path borders = fs::path(options.out) / (options.name + ".documents");
  Json summary;
  // The tokens get their name last: where they are, the rest is.
  replace_file(tokens, [&](const fs::path& unfinished) {
    replace_file(borders, [&](const fs::path& unfinished_borders) {
      summary = write_files(options, *tokenizer, unfinished, unfinished_borders);
    });
    write_file_atomically(fs::path(options.out) / (options.name + ".json"),
                          summary.dump({.indent = 1}) + "\n");
  });
  const double seconds = (now_ms() - start_ms) / 1e3;
  print_summary(summary, tokens.string(), seconds);
  if (options.common.json.empty()) return;
  summary["file"] = tokens.string();
  summary["seconds"] = seconds;
  write_file_atomically(options.common.json, summary.dump({.indent = 1}) + "\n");
}

ExitCode tokenize(Session& session, const TokenizeOptions& options) {
  init_log(options.common.log_level, session.communicator().rank(), session.communicator().size());
  run_on_root(session.communicator(), [&] { tokenize_all(options); });
  return ExitCode::kOk;
}

void add_reading_options(CommandSpec& command, TokenizeOptions& options) {
  command.add(
      "--format",
      &options.format,
      "How the inputs are read; auto: by their names, .jsonl, .csv and .tsv, others as text",
      {.show_default = true, .allowed = OneOf{{"auto", "text", "jsonl", "csv", "tsv"}}});
  command.add(
      "--documents",
      &options.documents,
      "What is a document of a text file: the whole file, what lies between blank lines, or "
      "a line",
      {.show_default = true, .allowed = OneOf{{"file", "blank-line", "line"}}});
  command.add("--document-separator",
              &options.reading.separator,
              "Text between the documents of a text file, which is left out");
  command.add("--field",
              &options.reading.field,
              "The member of each JSON line that is the text",
              {.show_default = true});
  command.add("--column",
              &options.reading.column,
              "The column of a table that is the text, by its name in the first line",
              {.show_default = true});
  command.add("--bad-lines",
              &options.bad_lines,
              "What to do with a line that has no text: fail, or leave it out and count it",
              {.show_default = true, .allowed = OneOf{{"fail", "skip"}}});
}

}  // namespace

CommandSpec data_tokenize_command() {
  auto options = std::make_shared<TokenizeOptions>();
  CommandSpec command{
      .name = "tokenize",
      .help = "Make files of tokens of text, JSON lines or tables, for data.tokens"};
  command.add("INPUT", &options->inputs, "Files of text, plain or .gz", {.required = true});
  command.add("--tokenizer",
              &options->tokenizer,
              "A tokenizer.json, a .model of SentencePiece, or a folder with one of them",
              {.required = true});
  command.add("--out", &options->out, "The folder for the files", {.required = true});
  command.add("--name",
              &options->name,
              "Their name: NAME.bin, NAME.documents and NAME.json",
              {.show_default = true});
  add_reading_options(command, *options);
  command.add("--end-token", &options->end_token, "A token to put after each document");
  command.add("--no-special",
              &options->no_special,
              "Leave out what the tokenizer itself puts before and after a text");
  command.add("--threads",
              &options->threads,
              "Threads that encode; 0: all CPUs",
              {.show_default = true, .allowed = WholeNumbers{0, 1024}});
  add_output_options(command, options->common);
  command.footer =
      "NAME.bin has 2 bytes a token, or 4 where the vocabulary is larger than 65536; NAME.documents "
      "where each document begins. They are the same with any number of threads, and appear under "
      "their names only when they are whole.";
  command.run = [options](Session& session) { return tokenize(session, *options); };
  return command;
}

}  // namespace lockstep
