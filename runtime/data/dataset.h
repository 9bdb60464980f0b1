#pragma once
// Data sets: numbered samples of a fixed shape, opened from the `data` section of the config.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"
#include "runtime/config/model_traits.h"
#include "runtime/config/preprocessing.h"
#include "runtime/data/label_counts.h"
#include "runtime/data/sample_order.h"

namespace lockstep::data {

// The dtype and shape of a sample's input or target, without the batch dimension. Inputs are
// features (F) f32, pixels (H, W, C) u8, or text as in text/text_samples.h. Targets are a class
// label () i32, values (O) f32, tokens or their classes (T) i32, or
// records of several named targets (W) i32, of which some elements are the bits of f32 values.
struct SampleSpec {
  DType dtype = DType::kF32;
  Shape shape;
  size_t bytes() const { return size_of(dtype) * static_cast<size_t>(shape.elements()); }
};

// Which sample to read. Sources that shift or augment samples do so as a pure function of their
// seed, `epoch` and `index`, and only if `augment` is true. Evaluation reads with epoch 0 and
// augment false.
struct SampleKey {
  int64_t index = 0;  // [0, samples())
  int64_t epoch = 0;
  bool augment = false;
};

// Dataset::checksum() reads about this many bytes of a larger data set.
inline constexpr int64_t kMaxHashedBytes = int64_t{1} << 29;

// A word of a sample, and the first of its tokens.
struct SampleWord {
  int64_t token = 0;
  std::string text;
};

// Immutable once opened; read() may be called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t samples() const = 0;  // in an epoch; >= 1
  const SampleSpec& input() const { return input_; }
  const SampleSpec& target() const { return target_; }
  // Writes input().bytes() to `input` and target().bytes() to `target`, which need no alignment
  // beyond that of their dtypes. Does not allocate, except in image decoders.
  virtual void read(const SampleKey& key, std::byte* input, std::byte* target) const = 0;
  // Heap and mapped bytes that the data set holds while it is open, for the memory plan.
  virtual int64_t resident_bytes() const = 0;
  // Tokens of a sample that are not padding, of the longest text if it has several; the same in
  // every epoch. 0 if samples are never padded or are not text.
  virtual int64_t length(int64_t /*index*/) const { return 0; }
  // The same of all texts of a sample together.
  virtual int64_t tokens(int64_t index) const { return length(index); }
  // The stored class of a sample whose target is a class label. If read() replaces a bad record,
  // the replacement may have another class. Throws what read() throws.
  virtual int32_t label(int64_t index) const;
  // The class labels of all samples, or of all tokens that are targets.
  virtual LabelCounts label_counts() const;
  // The file name of each sample within the data folder or tar file, in stored order. Empty if
  // samples are not files of their own.
  virtual std::vector<std::string> files() const { return {}; }
  // The line of its source file on which each sample begins, from 1, in stored order. Empty if
  // samples are not lines of a file, or if lines were not kept.
  virtual std::vector<int64_t> lines() const { return {}; }
  // The words of a sample that has a class for each word, if they were kept; see open_inputs().
  virtual std::vector<SampleWord> words(int64_t /*index*/) const { return {}; }
  // The record from which a sample comes: copies that replace bad records, and other repetitions,
  // are of the same record. Samples of a record are held out together.
  virtual int64_t record_of(int64_t index) const { return index; }
  // Whether read() has found the record bad and given the input of another one in its place.
  virtual bool is_replaced(int64_t /*index*/) const { return false; }
  // A stored sample in messages: "sample 331 of x.npy", "line 12 of train.csv".
  virtual std::string name_of(int64_t index) const;
  // How the data set should be shuffled.
  virtual SampleOrder order() const { return {.samples = samples()}; }
  // Whether read() is so slow (it decodes images) that several loader threads pay off.
  virtual bool is_expensive() const { return false; }
  // A checksum of the stored samples, before any processing. If they have more than
  // kMaxHashedBytes, it covers an evenly spaced part of about that size. Equal data give equal
  // checksums, whatever the paths of their files.
  virtual uint64_t checksum() const;
  // Bad records that read() has replaced so far, each counted once.
  virtual int64_t bad_records() const { return 0; }

 protected:
  explicit Dataset(SampleSpec input = {}, SampleSpec target = {})
      : input_(std::move(input)), target_(std::move(target)) {}

  SampleSpec input_, target_;  // fixed once the data set is made
};

// Base of data sets that change a part of another one.
class WrappedDataset : public Dataset {
 public:
  explicit WrappedDataset(std::unique_ptr<Dataset> dataset)
      : Dataset(dataset->input(), dataset->target()), dataset_(std::move(dataset)) {}

  int64_t samples() const override { return dataset_->samples(); }
  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    dataset_->read(key, input, target);
  }
  int64_t resident_bytes() const override { return dataset_->resident_bytes(); }
  int64_t length(int64_t index) const override { return dataset_->length(index); }
  int64_t tokens(int64_t index) const override { return dataset_->tokens(index); }
  int32_t label(int64_t index) const override { return dataset_->label(index); }
  LabelCounts label_counts() const override { return dataset_->label_counts(); }
  std::vector<std::string> files() const override { return dataset_->files(); }
  std::vector<int64_t> lines() const override { return dataset_->lines(); }
  std::vector<SampleWord> words(int64_t index) const override { return dataset_->words(index); }
  int64_t record_of(int64_t index) const override { return dataset_->record_of(index); }
  bool is_replaced(int64_t index) const override { return dataset_->is_replaced(index); }
  std::string name_of(int64_t index) const override { return dataset_->name_of(index); }
  SampleOrder order() const override { return dataset_->order(); }
  bool is_expensive() const override { return dataset_->is_expensive(); }
  uint64_t checksum() const override { return dataset_->checksum(); }
  int64_t bad_records() const override { return dataset_->bad_records(); }

 protected:
  const std::unique_ptr<Dataset> dataset_;
};

struct DataSummary {
  int64_t features = 0;  // input elements of a sample: F, T for tokens, H * W * C for images
  int64_t classes = 0;   // class labels or vocabulary; 0 for value targets
  // (classes) if the data name their classes, otherwise empty. Binary cross-entropy has two: the
  // names of 0 and of 1.
  std::vector<std::string> class_names;
  int64_t target_columns = 0;  // value targets O; 0 for labels and tokens
  // What a record of targets has, for models that name their targets; otherwise empty. A single
  // part may be a plain target.
  std::vector<config::TargetPart> targets = {};
  std::string target_name;  // of the file's column of value targets, if it has a name
  int64_t vocabulary = 0;   // of the input, for texts whose targets are not tokens; otherwise 0
  int64_t texts = 1;        // of a sample: 2 for pairs, 3 for triplets
  bool has_similarities = false;                   // the targets of evaluation pairs are given
  int64_t train_samples = 0;                       // 0 if the training set was not opened
  int64_t eval_samples = 0;                        // 0 without an evaluation set
  uint64_t train_checksum = 0, eval_checksum = 0;  // Dataset::checksum(), once computed
  int64_t bad_records = 0;            // skipped or replaced, training and evaluation files together
  std::string labels_from;            // file or column of the training labels, for messages
  std::string kind;                   // for the description: "IDX images"
  std::string unit = "samples";       // for the description
  std::string details;                // for the description: " of 784 bytes, 10 classes"
  std::string held_out;               // one line, if training samples are held out
  std::string description;            // one line for the log, by describe()
  std::vector<std::string> warnings;  // one line for each suspicious property of the data
  std::string placeholder;            // one line, if files are missing; see placeholder.h
  // Images are (height, width, channels) u8. All 0 and empty for other inputs.
  int64_t height = 0, width = 0, channels = 0;
  std::vector<float> mean, std;  // (channels), with which the model normalises pixels
  // (target_columns) if targets are standardised: the file's value is target * std + mean.
  std::vector<double> target_mean, target_std;
  config::Preprocessing preprocessing;  // of inputs other than tokens
};

struct OpenedData {
  std::unique_ptr<Dataset> train;  // null unless asked for
  std::unique_ptr<Dataset> eval;   // null if the config has no evaluation data
  DataSummary summary;
};

// Sets the summary's numbers of samples and its description, from the opened sets and the other
// fields.
void describe(OpenedData* opened);

// Opens and checks the data of a run. If need_train is false, only what evaluation needs is kept;
// training files are still read if they define the preprocessing or the number of classes.
// Throws DataError, which names the file, the row, record or column, the value and what is allowed.
// Throws ConfigError if the data source does not fit the model.
OpenedData open_data(const DataConfig& config,
                     const config::ModelTraits& model,
                     uint64_t seed,
                     bool need_train);

// The field that makes warnings errors in this config: "data.strict"; "" if none does.
std::string strict_field(const DataConfig& config);

// Like open_data(), but images stay images even if the model takes features.
OpenedData open_unflattened_data(const DataConfig& config,
                                 const config::ModelTraits& model,
                                 uint64_t seed,
                                 bool need_train);

}  // namespace lockstep::data
