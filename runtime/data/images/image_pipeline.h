#pragma once
// Turns a stored image into the pixels that the model sees.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/config/run_config.h"
#include "runtime/data/images/augment.h"
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

// Throws DataError unless the mask has the size of its image.
void require_size_of_image(const Mask& mask, ImageSize image);

// Nanoseconds spent, for benchmarks.
struct PipelineTimes {
  int64_t load = 0, decode = 0, transform = 0;
};

// The decoder and the resampler with their memory. Use one object per thread.
class ImagePipeline {
 public:
  // The pipeline of the calling thread.
  static ImagePipeline& of_this_thread();

  // Writes the image `index` of `store` to out: (output.height, output.width, channels) u8. Unless
  // `classes` is null, also writes its mask: (output.height, output.width) i32, with the same crop,
  // shift and flip. The class of an output pixel is that of the mask's pixel at its centre, and -1
  // in the padding. The random numbers are those of `sample` in `epoch` of `seed`. Without
  // `augment`, none are drawn and JPEG files are decoded in full, as PIL does. Adds to `times`
  // unless null. Throws DataError, without a file name, if the image is damaged, and IoError if it
  // cannot be read.
  void run(const PipelineSettings& settings,
           const ImageStore& store,
           int64_t index,
           int64_t sample,
           int64_t epoch,
           uint64_t seed,
           bool augment,
           uint8_t* out,
           int32_t* classes = nullptr,
           PipelineTimes* times = nullptr);

  // Decodes the whole image, at its full size or, if `shorter_side` is above 0, resized so that the
  // shorter side has that length. The pixels are valid until the next call.
  PixelView decode_whole(const StoredImage& stored, int64_t shorter_side);

  // The size of an image according to its header.
  ImageSize size_of(const StoredImage& stored) {
    return stored.pixels ? stored.size : decoder_.open(stored.bytes);
  }

  // Memory for ImageStore::load() and load_mask().
  std::vector<std::byte>& buffer() { return buffer_; }
  Mask& mask() { return mask_; }

 private:
  PixelView fetch(const StoredImage& stored, ResampleAxis rows, ResampleAxis columns, bool in_full);
  // Resamples to `size`; the pixels are valid until the next call.
  PixelView resampled(const PixelView& view, ImageSize size);

  // See run(). Throws DataError if the mask has not the image's size.
  void write_classes(const ImageStore& store,
                     int64_t index,
                     ImageSize size,
                     const ResampleAxis& rows,
                     const ResampleAxis& columns,
                     const Augmentation& drawn,
                     int32_t* out);

  ImageDecoder decoder_;
  Resampler resampler_;
  std::vector<std::byte> buffer_;
  std::vector<uint8_t> scratch_;
  Mask mask_;
  std::vector<int> mask_columns_;
};

}  // namespace lockstep::data
