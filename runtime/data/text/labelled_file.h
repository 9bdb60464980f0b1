#pragma once
// Reads and tokenises a file of labelled texts.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/config/run_config.h"
#include "runtime/data/dataset.h"
#include "runtime/data/text/class_names.h"
#include "runtime/data/text/encoder_threads.h"
#include "runtime/data/text/text_encoding.h"
#include "runtime/data/text/text_store.h"

namespace lockstep::data {

// What the files of a data set have in common. Borrows its members.
struct LabelledSource {
  const DataConfig& data;
  const LabelledTextConfig& config;
  const config::ModelTraits& model;
  const TextForm& form;
  EncoderThreads& threads;
};

struct LabelledSamples {
  explicit LabelledSamples(const TextForm& form)
      : texts(form.parts(), form.tokenizer().id_limit()) {}

  TextStore texts;
  std::vector<int32_t> labels;  // (texts) classes, or empty
  std::vector<float> values;    // (texts) or empty
  std::vector<int64_t> lines;   // (texts) in the file; only if labels are optional
  // (texts) see Dataset::record_of(); empty: their indices
  std::vector<int64_t> records;
  int64_t bad_records = 0;
  int64_t cut = 0;  // number of truncated texts
  std::vector<std::string> warnings;
};

// Which columns are read. For kTexts and kTextsAndAnyLabels the file need not have a column of
// labels. A label that is missing or invalid is -1 or NaN with kTextsAndAnyLabels, not a bad row.
enum class LabelledParts { kTextsAndLabels, kLabels, kTexts, kTextsAndAnyLabels };

// Reads all rows of the file that the config field `field` names. A row is bad if it is malformed,
// if its text has no token, or if its label is missing, is not a number although the model predicts
// values, or is not one of `classes`. Bad rows are handled according to data.bad_records. `trains`:
// this is the training file, whose labels become `classes` unless these are listed. Throws
// DataError.
LabelledSamples read_labelled_file(const LabelledSource& source,
                                   const std::string& path,
                                   const std::string& field,
                                   bool trains,
                                   LabelledParts parts,
                                   ClassNames* classes);

// Samples (4, T) i32 as in text_samples.h. The target is a class () i32 or, for kSequenceValues, a
// value (1) f32; -1 or NaN if labels were not read.
std::unique_ptr<Dataset> make_labelled_dataset(LabelledSamples samples,
                                               const config::ModelTraits& model);

}  // namespace lockstep::data
