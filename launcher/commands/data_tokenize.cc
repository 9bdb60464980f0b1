// lockstep data tokenize --tokenizer FILE|DIR --out DIR INPUT...
#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "launcher/command_line/common_options.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/data/threads.h"
#include "launcher/ranks/first_rank.h"
#include "launcher/text/tokenization.h"
#include "runtime/base/file.h"
#include "runtime/base/names.h"
#include "runtime/base/time.h"

namespace lockstep::launcher {
namespace {

namespace fs = std::filesystem;

struct TokenizeOptions {
  CommonOptions common;  // --json and --log-level
  std::vector<std::string> inputs;
  std::string tokenizer, out, name = "train", format = "auto", documents = "file", end_token,
                              bad_lines = "fail";
  data::DocumentOptions reading;
  bool no_special = false;
  int threads = 0;
};

void print_summary(const Json& summary, const std::string& path, double seconds) {
  const auto bytes = summary["input_bytes"].get<double>();
  const auto bad = summary["bad_lines"].get<int64_t>();
  fmt::print(
      "{}: {} tokens of {} bytes, {} documents, {:.1f} MB read, in {:.1f} s ({:.1f} MB/s){}\n",
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
}

TokenizationOptions how_to(const TokenizeOptions& options, const tokenizer::Tokenizer& tokenizer) {
  TokenizationOptions how{.reading = options.reading,
                          .special_tokens = !options.no_special,
                          .end_token = {},
                          .skip_bad_lines = options.bad_lines == "skip",
                          .threads = choose_data_threads(options.threads)};
  if (options.end_token.empty()) return how;
  how.end_token = tokenizer.id_of(options.end_token);
  if (!how.end_token)
    throw ConfigError(
        "--end-token: value is '{}'; allowed: a token of {}", options.end_token, options.tokenizer);
  return how;
}

// Reads, encodes and writes to temporary names. Returns the summary.
Json write_files(const TokenizeOptions& options,
                 const tokenizer::Tokenizer& tokenizer,
                 const fs::path& tokens,
                 const fs::path& borders) {
  data::TokenWriter writer(tokens, borders, tokenizer.id_limit());
  Tokenization work(how_to(options, tokenizer), tokenizer, writer);
  work.run(options.inputs);
  if (writer.tokens() == 0) throw DataError("{}: has no text", options.inputs[0]);
  writer.finish();
  Json summary;
  summary["tokens"] = writer.tokens();
  summary["documents"] = writer.documents();
  summary["token_bytes"] = writer.token_bytes();
  summary["vocabulary"] = tokenizer.id_limit();
  summary["tokenizer"] = options.tokenizer;
  summary["end_token"] = options.end_token;
  summary["input_bytes"] = work.input_bytes();
  summary["bad_lines"] = work.bad_lines();
  return summary;
}

data::DocumentOptions reading_of(const TokenizeOptions& options) {
  data::DocumentOptions reading = options.reading;
  if (options.documents == "blank-line") reading.split = data::DocumentSplit::kBlankLines;
  if (options.documents == "line") reading.split = data::DocumentSplit::kLines;
  if (options.documents != "file" && !options.reading.separator.empty())
    throw ConfigError(
        "--document-separator: given together with --documents {}; allowed: one of the two",
        options.documents);
  if (options.format == "text") reading.format = data::DocumentFormat::kText;
  if (options.format == "jsonl") reading.format = data::DocumentFormat::kJsonLines;
  if (options.format == "csv") reading.format = data::DocumentFormat::kCsv;
  if (options.format == "tsv") reading.format = data::DocumentFormat::kTsv;
  return reading;
}

void check_inputs(const TokenizeOptions& options) {
  if (options.name.empty() || options.name.find('/') != std::string::npos)
    throw ConfigError("--name: value is '{}'; allowed: a file's name without '/'", options.name);
  for (const std::string& path : options.inputs)
    if (!is_file(path))
      throw DataError("{}: {}",
                      path,
                      !lockstep::is_there(path) ? "no such file" + look_alike_hint(path)
                      : is_folder(path)
                          ? "is a folder; allowed: files"
                          : "is not a regular file, or cannot be read; allowed: files");
}

void tokenize_all(TokenizeOptions options) {
  options.reading = reading_of(options);
  check_inputs(options);
  require_result_folder("--out", options.out);
  require_result_path("--json", options.common.json);
  const double start_ms = now_ms();
  if (!lockstep::is_there(options.tokenizer))
    throw DataError(
        "--tokenizer: '{}' does not exist; give a tokenizer.json, a .model of SentencePiece, a "
        "vocab.json with merges.txt, a .tiktoken, or a folder with one of them{}",
        options.tokenizer,
        look_alike_hint(options.tokenizer));
  const auto tokenizer = tokenizer::open_tokenizer(options.tokenizer);
  std::error_code problem;
  fs::create_directories(options.out, problem);
  if (problem) throw IoError("create", options.out, problem.value());
  const fs::path tokens = fs::path(options.out) / (options.name + ".bin");
  const fs::path borders = fs::path(options.out) / (options.name + ".documents");
  Json summary;
  // The tokens get their final name last: if they exist, so do the other files.
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
  write_json(options.common.json, summary);
}

void add_reading_options(CommandSpec& command, TokenizeOptions& options) {
  command.add("--format",
              &options.format,
              "Format of the inputs; auto: by file name, .jsonl, .csv and .tsv, others as text",
              {.show_default = true, .allowed = OneOf{{"auto", "text", "jsonl", "csv", "tsv"}}});
  command.add(
      "--documents",
      &options.documents,
      "What a document of a text file is: the whole file, the text between blank lines, or a line",
      {.show_default = true, .allowed = OneOf{{"file", "blank-line", "line"}}});
  command.add("--document-separator",
              &options.reading.separator,
              "Text that separates the documents of a text file; it is dropped");
  command.add("--field",
              &options.reading.field,
              "Member of each JSON line that has the text",
              {.show_default = true});
  command.add("--column",
              &options.reading.column,
              "Column of a table that has the text, by its name in the first line",
              {.show_default = true});
  command.add("--bad-lines",
              &options.bad_lines,
              "For a line without text: fail, or skip and count it",
              {.show_default = true, .allowed = OneOf{{"fail", "skip"}}});
}

}  // namespace

CommandSpec data_tokenize_command() {
  auto options = std::make_shared<TokenizeOptions>();
  CommandSpec command{
      .name = "tokenize",
      .help = "Convert text, JSON lines or tables to files of tokens, for data.tokens"};
  command.add("INPUT",
              &options->inputs,
              "Files of text, plain or .gz",
              {.required = true, .also = "input i file files corpus"});
  command.add(
      "--tokenizer",
      &options->tokenizer,
      "A tokenizer.json, a .model of SentencePiece, a vocab.json with merges.txt, a .tiktoken, or "
      "a folder with one of them",
      {.required = true, .also = "vocab vocab_file model tokenizer_model encoding"});
  command.add("--out",
              &options->out,
              "The folder for the files",
              {.required = true, .also = "output o output_dir outdir"});
  command.add("--name",
              &options->name,
              "Their name: NAME.bin, NAME.documents and NAME.json",
              {.show_default = true});
  add_reading_options(command, *options);
  command.add("--end-token", &options->end_token, "A token to put after each document");
  command.add("--no-special",
              &options->no_special,
              "Omit the tokens that the tokenizer adds before and after a text");
  add_threads_option(command,
                     options->threads,
                     "Threads that encode; 0: all CPUs",
                     "workers num_workers num_proc jobs j");
  add_output_options(command, options->common);
  command.footer =
      "NAME.bin has 2 bytes for each token, or 4 if the vocabulary is larger than 65536; "
      "NAME.documents has the offset of each document. The files are the same with any number of "
      "threads, and get their names only once they are complete.";
  command.run = [options](Session& session) {
    return on_first_rank(session, options->common.log_level, [&] { tokenize_all(*options); });
  };
  return command;
}

}  // namespace lockstep::launcher
