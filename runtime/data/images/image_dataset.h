#pragma once
// A data set of images: a store, the pipeline, and what happens to bad ones.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/images/image_pipeline.h"
#include "runtime/data/images/image_store.h"
#include "runtime/data/images/image_stores.h"

namespace lockstep {

// Samples: input (height, width, channels) u8, target label () i32.
//
// An image that cannot be decoded fails the run, or (SKIP, REPLACE) the next one that can be takes
// its place, cyclically, with the random numbers of the one replaced. So the number of samples
// stays, and what a sample is depends on the files alone, not on who read what before. Each process
// counts and tells those that it has read since it began, each once; where one counts more than
// max_bad_fraction of all samples the run fails whatever the policy. A file that cannot be read at
// all (no such file, an I/O error) always does: that is the machine's fault, and other ranks may
// see it differently.
class ImageDataset final : public Dataset {
 public:
  ImageDataset(std::shared_ptr<const ImageStore> store,
               PipelineSettings settings,
               const DataConfig& config,
               uint64_t seed);

  int64_t samples() const override { return store_->count(); }
  const SampleSpec& input() const override { return input_; }
  const SampleSpec& target() const override { return target_; }
  void read(const SampleKey& key, std::byte* input, std::byte* target) const override;
  int64_t resident_bytes() const override;
  int32_t label(int64_t index) const override { return store_->label(index); }
  std::vector<std::string> files() const override { return store_->files(); }
  SampleOrder order() const override { return store_->order(); }
  bool costly() const override { return store_->encoded(); }
  uint64_t content() const override;
  int64_t bad_records() const override { return bad_.load(); }

  // The input of a sample itself, without replacement. A bad one is told, counted or thrown as in
  // read(), and gives false. Adds to `times` unless null.
  bool read_input(const SampleKey& key, std::byte* input, PipelineTimes* times) const {
    return make_input(key, key.index, input, times);
  }

  const ImageStore& store() const { return *store_; }

 private:
  // The image `index` with the random numbers of the sample `key`.
  bool make_input(const SampleKey& key,
                  int64_t index,
                  std::byte* input,
                  PipelineTimes* times) const;
  bool known_bad(int64_t index) const;
  void note_bad(int64_t index, const char* what) const;

  std::shared_ptr<const ImageStore> store_;
  PipelineSettings settings_;
  BadRecords policy_;
  float max_bad_fraction_;
  uint64_t seed_;
  SampleSpec input_, target_;
  mutable std::vector<std::atomic<uint64_t>> known_bad_;  // a bit per sample
  mutable std::atomic<int64_t> bad_{0};
};

// The data sets of opened stores. Throws ConfigError where the image and augment sections do not
// fit the images, DataError where those for evaluation have another size.
OpenedData open_stores(const DataConfig& config, const ImageStores& stores, uint64_t seed);

}  // namespace lockstep
