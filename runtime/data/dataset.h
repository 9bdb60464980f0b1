#pragma once
// Data sets: numbered samples of a fixed shape, opened from the `data` section of the config.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"
#include "runtime/config/run_config.h"

namespace lockstep {

// One sample without the batch dimension. Inputs: features (F) f32 or tokens (T) i32.
// Targets: class label () i32, values (O) f32, or next tokens (T) i32.
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

// Immutable once opened; read() may be called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t samples() const = 0;  // in an epoch; >= 1
  virtual const SampleSpec& input() const = 0;
  virtual const SampleSpec& target() const = 0;
  // Writes input().bytes() to `input` and target().bytes() to `target`; neither need be aligned
  // beyond its dtype. Does not allocate.
  virtual void read(const SampleKey& key, std::byte* input, std::byte* target) const = 0;
  // Heap and mapped bytes that this data set keeps while it is open, for the memory plan.
  virtual int64_t resident_bytes() const = 0;
};

struct DataSummary {
  int64_t features = 0;        // input elements of a sample: F, or T for tokens
  int64_t classes = 0;         // class labels or vocabulary; 0 for value targets
  int64_t target_columns = 0;  // value targets O; 0 for labels and tokens
  int64_t train_samples = 0;   // 0 when the training set was not opened
  int64_t eval_samples = 0;    // 0 without an evaluation set
  int64_t bad_records = 0;     // skipped or replaced, training and evaluation files together
  std::string description;     // one line for the log
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
                     const ModelConfig& model,
                     uint64_t seed,
                     bool need_train);

}  // namespace lockstep
