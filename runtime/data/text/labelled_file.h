#pragma once
// A file of labelled texts, read and tokenised.

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

namespace lockstep {

// What files of a data set have in common; borrowed.
struct LabelledSource {
  const DataConfig& data;
  const LabelledTextConfig& config;
  const ModelTraits& model;
  const TextForm& form;
  EncoderThreads& threads;
};

struct LabelledSamples {
  explicit LabelledSamples(const TextForm& form)
      : texts(form.parts(), form.tokenizer().id_limit()) {}

  TextStore texts;
  std::vector<int32_t> labels;  // (texts) classes, or
  std::vector<float> values;    // (texts)
  int64_t bad_records = 0;
  int64_t cut = 0;                  // texts that were too long
  std::vector<std::string> doubts;  // what looks wrong
};

// What is read of a file. Texts alone: it need not have a column of labels.
enum class LabelledParts { kTextsAndLabels, kLabels, kTexts };

// Reads all rows of a file, which `field` of the config names. Bad are malformed rows, texts without a
// token, labels that are missing, no numbers where the model predicts values, or none of `classes`;
// what they do, data.bad_records says. `trains`: of the training file, which is looked at for doubts,
// and whose labels become `classes` where none are listed. Throws DataError.
LabelledSamples read_labelled_file(const LabelledSource& source,
                                   const std::string& path,
                                   const std::string& field,
                                   bool trains,
                                   LabelledParts parts,
                                   ClassNames* classes);

// Samples (4, T) i32 as in text_samples.h, with a class () i32 or, for kSequenceValues, a value (1)
// f32 as target; zeros where labels were not read.
std::unique_ptr<Dataset> make_labelled_dataset(LabelledSamples samples, const ModelTraits& model);

}  // namespace lockstep
