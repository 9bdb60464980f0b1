#pragma once
// Turns a stored image into the pixels that the model sees.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/config/run_config.h"
#include "runtime/data/images/image_decoder.h"
#include "runtime/data/images/image_store.h"
#include "runtime/data/images/resample.h"

namespace lockstep::data {

// How the images of a data set are processed.
struct PipelineSettings {
  ImageSize output;
  // In evaluation, and in training without random_resized_crop: the length of the shorter side
  // before the centre is cut out. 0: stored images are pixels that have the output's size already.
  int64_t resize = 0;
  AugmentConfig augment;
  // If false, training decodes a JPEG file at the smallest scale that is sufficient, not in full.
  bool exact_jpeg = false;
};

// Nanoseconds spent, for benchmarks.
struct PipelineTimes {
  int64_t load = 0, decode = 0, transform = 0;
};

// The decoder and the resampler with their memory. Use one object per thread.
class ImagePipeline {
 public:
  // The pipeline of the calling thread.
  static ImagePipeline& of_this_thread();

  // Writes the image `index` of `store` to out: (output.height, output.width, channels) u8. The
  // random numbers are those of `sample` in `epoch` of `seed`. Without `augment`, none are drawn
  // and JPEG files are decoded in full, as PIL does. Adds to `times` unless null. Throws DataError,
  // without a file name, if the image is damaged, and IoError if it cannot be read.
  void run(const PipelineSettings& settings,
           const ImageStore& store,
           int64_t index,
           int64_t sample,
           int64_t epoch,
           uint64_t seed,
           bool augment,
           uint8_t* out,
           PipelineTimes* times = nullptr);

  // Decodes the whole image, at its full size or, if `shorter_side` is above 0, resized so that the
  // shorter side has that length. The pixels are valid until the next call.
  PixelView decode_whole(const StoredImage& stored, int64_t shorter_side);

  // The size of an image according to its header.
  ImageSize size_of(const StoredImage& stored) {
    return stored.pixels ? stored.size : decoder_.open(stored.bytes);
  }

  // A buffer for ImageStore::load().
  std::vector<std::byte>& buffer() { return buffer_; }

 private:
  PixelView fetch(const StoredImage& stored, ResampleAxis rows, ResampleAxis columns, bool in_full);
  // Resamples to `size`; the pixels are valid until the next call.
  PixelView resampled(const PixelView& view, ImageSize size);

  ImageDecoder decoder_;
  Resampler resampler_;
  std::vector<std::byte> buffer_;
  std::vector<uint8_t> scratch_;
};

}  // namespace lockstep::data
