#pragma once
// Predictions as rows of a table, and the files that hold predictions.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/command_line/table_file.h"
#include "runtime/data/dataset.h"
#include "runtime/train/evaluation/predictor.h"
#include "runtime/train/evaluation/token_losses.h"

namespace lockstep::launcher {

enum class PredictionFormat { kCsv, kTsv, kJsonLines, kNpy, kSafetensors };

// The endings of files, in the order in which messages list them.
struct PredictionEnding {
  std::string_view ending;
  PredictionFormat format;
};
inline constexpr PredictionEnding kPredictionEndings[] = {
    {".csv", PredictionFormat::kCsv},
    {".tsv", PredictionFormat::kTsv},
    {".jsonl", PredictionFormat::kJsonLines},
    {".npy", PredictionFormat::kNpy},
    {".safetensors", PredictionFormat::kSafetensors},
};

// They as require_result_path() takes them, and the format of a path that it has accepted.
std::vector<std::string_view> prediction_endings();
PredictionFormat prediction_format(std::string_view path);
inline bool is_table(PredictionFormat format) {
  return format != PredictionFormat::kNpy && format != PredictionFormat::kSafetensors;
}

// What the outputs are: of classes by softmax, of one or several yes-or-no answers by sigmoid,
// values, or of symbols of a text.
enum class PredictedKind { kClasses, kYesNo, kSeveralYesNo, kValues, kTranscripts };

// Names for the rows and columns of predictions. Borrows the predictions and the data set.
struct PredictedTable {
  const train::Predictions& predictions;
  const data::Dataset& dataset;
  PredictedKind kind = PredictedKind::kValues;
  std::vector<std::string> class_names = {};  // or empty, then numbers stand for them
  std::string target_name = {};               // of values, or ""
  int32_t blank = 0;                          // of transcripts: the class that stands for no symbol
  const char* row = "token";                  // what a row is if a sample has several
};

// Writes a table with these columns:
//   file           of the sample, if samples are files; otherwise `row`, the sample's index, and
//                  `line`, if the data set knows its lines
//   token, word    if rows are tokens: the token's index in the sample, and the word that begins
//                  with it. If the data set knows words, only their first tokens are rows;
//                  otherwise all but padding. Other rows have a column PredictedTable::row
//   label          the target, if the data have some: the name or number of a class, or a value
//   predicted, probability    of classes: the likeliest and its probability
//   a column for each class: its probability, by softmax or sigmoid
// Values have a column for each output, named `predicted` or by the target's name if there is one,
// and otherwise by numbers. With several outputs and values as targets, there is a column
// `label NAME` for each. Transcripts have one row for a sample: the wanted text as `label`, and the
// text of the best path as `predicted`.
void write_table(const PredictedTable& table,
                 const std::filesystem::path& path,
                 PredictionFormat format);

// A row for each document: row (the sample), document, counted, loss.
void write_table(const std::vector<train::DocumentLoss>& documents,
                 const std::filesystem::path& path,
                 PredictionFormat format);

// Writes an array of f32 as NumPy's .npy, made complete and durable.
void write_npy(const std::filesystem::path& path,
               const std::vector<int64_t>& extents,
               std::span<const float> values);

}  // namespace lockstep::launcher
