#pragma once
// Data sets: numbered samples of a fixed shape, opened from the `data` section of the config.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"
#include "runtime/config/model_traits.h"
#include "runtime/data/sample_order.h"

namespace lockstep {

// One sample without the batch dimension. Inputs: features (F) f32, pixels (H, W, C) u8, or text:
// see text/text_samples.h.
// Targets: class label () i32, values (O) f32, or tokens or their classes (T) i32.
struct SampleSpec {
  DType dtype = DType::kF32;
  Shape shape;
  size_t bytes() const { return size_of(dtype) * static_cast<size_t>(shape.elements()); }
};

// Which sample to read. Sources that shift or augment do so as a pure function of their seed,
// `epoch` and `index`, and only when `augment` is true; evaluation reads with epoch 0 and augment
// false.
struct SampleKey {
  int64_t index = 0;  // [0, samples())
  int64_t epoch = 0;
  bool augment = false;
};

inline constexpr int64_t kMostHashedBytes = int64_t{1} << 29;

// Immutable once opened; read() may be called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t samples() const = 0;  // in an epoch; >= 1
  virtual const SampleSpec& input() const = 0;
  virtual const SampleSpec& target() const = 0;
  // Writes input().bytes() to `input` and target().bytes() to `target`; neither need be aligned
  // beyond its dtype. Does not allocate, except in the decoders of images.
  virtual void read(const SampleKey& key, std::byte* input, std::byte* target) const = 0;
  // Heap and mapped bytes that this data set keeps while it is open, for the memory plan.
  virtual int64_t resident_bytes() const = 0;
  // Tokens of a sample that are not padding, in the stored order and in every epoch. 0: samples are
  // never padded, or are no text.
  virtual int64_t length(int64_t /*index*/) const { return 0; }
  // The class of a sample whose target is a class label, as stored: what read() puts into the place
  // of a bad record may have another one. Throws what read() throws.
  virtual int32_t label(int64_t index) const;
  // The files that the samples are, in stored order: as the folder of the set or the tar file has
  // them. Empty where samples are no files.
  virtual std::vector<std::string> files() const { return {}; }
  // The order in which it is best shuffled.
  virtual SampleOrder order() const { return {.samples = samples()}; }
  // Whether read() costs so much (it decodes) that several threads are worth their while.
  virtual bool costly() const { return false; }
  // A checksum of the samples as they lie in the files, before anything is done to them: of all or,
  // where they come to much more than kMostHashedBytes, of as many as come to that, evenly spread.
  // Equal data give equal checksums, wherever their files lie.
  virtual uint64_t content() const;
  // Bad records that read() has replaced so far, each counted once.
  virtual int64_t bad_records() const { return 0; }
};

struct DataSummary {
  int64_t features = 0;  // input elements of a sample: F, T for tokens, H * W * C for images
  int64_t classes = 0;   // class labels or vocabulary; 0 for value targets
  // (classes) where the data name them, else empty. Of binary cross-entropy two: that of 0 and of 1.
  std::vector<std::string> class_names;
  int64_t target_columns = 0;                    // value targets O; 0 for labels and tokens
  int64_t vocabulary = 0;                        // of texts whose targets are no tokens; else 0
  int64_t train_samples = 0;                     // 0 when the training set was not opened
  int64_t eval_samples = 0;                      // 0 without an evaluation set
  uint64_t train_content = 0, eval_content = 0;  // Dataset::content(), once it has been taken
  int64_t bad_records = 0;          // skipped or replaced, training and evaluation files together
  std::string description;          // one line for the log
  std::vector<std::string> doubts;  // what looks wrong in the data, a line each, for warnings
  std::string assumed;              // in one line, where files are not here: see assumed.h
  // Images, (height, width, channels) u8; all 0 and empty where the input is something else.
  int64_t height = 0, width = 0, channels = 0;
  std::vector<float> mean, std;  // (channels) that the model normalises with
  // (target_columns) of values that are standardised: target * std + mean is what the file has.
  std::vector<double> target_mean, target_std;
};

struct OpenedData {
  std::unique_ptr<Dataset> train;  // null unless asked for
  std::unique_ptr<Dataset> eval;   // null when the config has no evaluation data
  DataSummary summary;
};

// Opens and checks the data of a run. With need_train false only what evaluation needs is kept; the
// training files are still read where they define the preprocessing or the number of classes.
// Throws DataError that names the file, the row, record or column, the value and what is allowed,
// and ConfigError where the data source does not fit the model.
OpenedData open_data(const DataConfig& config,
                     const ModelTraits& model,
                     uint64_t seed,
                     bool need_train);

// The same, but images stay images for models that take features.
OpenedData open_unflattened_data(const DataConfig& config,
                                 const ModelTraits& model,
                                 uint64_t seed,
                                 bool need_train);

}  // namespace lockstep
