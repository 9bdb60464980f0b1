#pragma once
// From a stored image to the bytes that the model sees.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/config/run_config.h"
#include "runtime/data/images/augment.h"
#include "runtime/data/images/image_decoder.h"
#include "runtime/data/images/image_store.h"
#include "runtime/data/images/resample.h"

namespace lockstep {

// What every image of a data set goes through.
struct PipelineSettings {
  ImageSize output;
  // Evaluation, and training without random_resized_crop: shorter side before the centre is cut
  // out; 0: the source's images are pixels, of the output's size already.
  int64_t resize = 0;
  AugmentConfig augment;
  // Training, too, decodes JPEG files in full: where false, at the smallest scale that is enough.
  bool exact_jpeg = false;
};

// Nanoseconds spent, for benchmarks.
struct PipelineTimes {
  int64_t load = 0, decode = 0, transform = 0;
};

// The decoder, the resampler and their memory: one object per thread.
class ImagePipeline {
 public:
  // That of the calling thread.
  static ImagePipeline& of_this_thread();

  // Makes the image `index` of `store` into out: (output.height, output.width, channels) u8.
  // `drawn_as` is the sample whose random numbers it gets, in `epoch` of `seed`; not `augment`:
  // as in evaluation, which decodes JPEG files in full, as PIL does. Adds to `times` unless null. Throws DataError, without a name, when the
  // image is damaged, IoError when it cannot be read.
  void run(const PipelineSettings& settings,
           const ImageStore& store,
           int64_t index,
           int64_t drawn_as,
           int64_t epoch,
           uint64_t seed,
           bool augment,
           uint8_t* out,
           PipelineTimes* times = nullptr);

  // Decodes the whole image, at its full size or, with `shorter_side` above 0, so that the
  // shorter side becomes so long. The pixels stay until the next call.
  PixelView decode_whole(const StoredImage& stored, int64_t shorter_side);

  // Size of an image, from its header.
  ImageSize size_of(const StoredImage& stored) {
    return stored.pixels ? stored.size : decoder_.open(stored.bytes);
  }

  // Where load() of a store may put what it reads.
  std::vector<std::byte>& buffer() { return buffer_; }

 private:
  PixelView fetch(const StoredImage& stored, ResampleAxis rows, ResampleAxis columns, bool in_full);

  ImageDecoder decoder_;
  Resampler resampler_;
  std::vector<std::byte> buffer_;
  std::vector<uint8_t> scratch_;
};

}  // namespace lockstep
