#pragma once
// A data set of images, with decoding, augmentation and the handling of bad images.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/images/image_pipeline.h"
#include "runtime/data/images/image_store.h"
#include "runtime/data/images/image_stores.h"

namespace lockstep::data {

// Samples: input (height, width, channels) u8, target label () i32 or, if the store has masks, the
// classes of the pixels (height, width) i32.
//
// An image that cannot be decoded fails the run (data.bad_records FAIL) or is replaced (SKIP,
// REPLACE) by the next good one, cyclically, with the random numbers of the image replaced. So the
// number of samples does not change, and a sample depends on the files alone, not on what was read
// before. Each process counts and logs the bad images that it has read, each once. If they exceed
// max_bad_fraction of all samples, the run fails whatever the policy. A file that cannot be read at
// all (it does not exist, or an I/O error) always fails the run: that is a fault of the machine,
// and other ranks may not see it.
class ImageDataset final : public Dataset {
 public:
  ImageDataset(std::shared_ptr<const ImageStore> store,
               PipelineSettings settings,
               const DataConfig& config,
               uint64_t seed);

  int64_t samples() const override { return store_->count(); }
  void read(const SampleKey& key, std::byte* input, std::byte* target) const override;
  int64_t resident_bytes() const override;
  int32_t label(int64_t index) const override { return store_->label(index); }
  std::vector<std::string> files() const override { return store_->files(); }
  int64_t record_of(int64_t index) const override { return store_->record_of(index); }
  SampleOrder order() const override { return store_->order(); }
  bool is_expensive() const override { return store_->encoded(); }
  uint64_t checksum() const override;
  int64_t bad_records() const override { return bad_.load(); }
  bool is_replaced(int64_t index) const override { return known_bad(index); }

  // Writes a sample without replacing it; `target` may be null. A bad image is logged and counted,
  // or its error thrown, as in read(); then returns false. Adds to `times` unless null.
  bool read_stored(const SampleKey& key,
                   std::byte* input,
                   std::byte* target,
                   PipelineTimes* times) const {
    return make_sample(key, key.index, input, target, times);
  }

  const ImageStore& store() const { return *store_; }

 private:
  // Makes the sample from the image `index`, with the random numbers of the sample `key`.
  bool make_sample(const SampleKey& key,
                   int64_t index,
                   std::byte* input,
                   std::byte* target,
                   PipelineTimes* times) const;
  bool known_bad(int64_t index) const;
  void note_bad(int64_t index, const char* what) const;

  std::shared_ptr<const ImageStore> store_;
  PipelineSettings settings_;
  BadRecords policy_;
  float max_bad_fraction_;
  uint64_t seed_;
  mutable std::vector<std::atomic<uint64_t>> known_bad_;  // a bit per sample
  mutable std::atomic<int64_t> bad_{0};
};

// Makes data sets of opened stores. Throws ConfigError if the image and augment sections do not fit
// the images. Throws DataError if images for evaluation have another size than those for training.
OpenedData open_stores(const DataConfig& config, const ImageStores& stores, uint64_t seed);

// Converts samples (H, W, C) u8 to x (H * W * C) f32 = (byte / 255 - mean[c]) / std[c]; they are
// normalised here, because such models do not do it. Throws ConfigError if the model's targets are
// not classes, DataError if it has fewer classes than the data.
OpenedData flatten_images(OpenedData images, const config::ModelTraits& model);

}  // namespace lockstep::data
