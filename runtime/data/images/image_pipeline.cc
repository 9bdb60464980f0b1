#include "runtime/data/images/image_pipeline.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "runtime/base/error.h"

namespace lockstep::data {
namespace {

using Axes = std::pair<ResampleAxis, ResampleAxis>;  // rows, columns

// Maps a region to the whole output. Pixels outside the region have no influence.
Axes axes_of_crop(const ImageRegion& crop, ImageSize output) {
  const auto axis = [](int low, int high, int outputs) {
    return ResampleAxis{
        static_cast<double>(low), static_cast<double>(high - low) / outputs, low, high, outputs};
  };
  return {axis(crop.top, crop.bottom, output.height), axis(crop.left, crop.right, output.width)};
}

// The size whose shorter side is `shorter`. The longer side is rounded as in torchvision.
ImageSize resized(ImageSize size, int64_t shorter) {
  const int64_t longer =
      std::max(size.height, size.width) * shorter / std::min(size.height, size.width);
  if (shorter * longer > kMaxPixels)
    throw DataError(
        "an image of {} x {} pixels, resized to {} pixels on the shorter side, has more than {} "
        "pixels",
        size.width,
        size.height,
        shorter,
        kMaxPixels);
  return size.height <= size.width ? ImageSize{static_cast<int>(shorter), static_cast<int>(longer)}
                                   : ImageSize{static_cast<int>(longer), static_cast<int>(shorter)};
}

// Maps the centre of the image, after a resize to `whole`, to the output. The rest of the resized
// image is never computed.
Axes axes_of_centre(ImageSize size, ImageSize whole, ImageSize output) {
  const auto axis = [](int input, int length, int outputs) {
    const double scale = static_cast<double>(input) / length;
    const double first = std::nearbyint((length - outputs) / 2.0);  // rounds like Python's round()
    return ResampleAxis{first * scale, scale, 0, input, outputs};
  };
  return {axis(size.height, whole.height, output.height),
          axis(size.width, whole.width, output.width)};
}

// out(y, x) = in(y + shift_y, x + shift_x), black outside of `in`, and then mirrored left to right
// if `flip` is set. The output has the size of the input.
void shift_and_flip(const PixelView& in,
                    const Augmentation& drawn,
                    ImageSize output,
                    uint8_t* out) {
  const int channels = in.channels;
  const int shift_x = drawn.flip ? -drawn.shift_x : drawn.shift_x;  // of the flipped image
  for (int y = 0; y < output.height; ++y) {
    const int from_y = y + drawn.shift_y;
    uint8_t* row = out + int64_t{y} * output.width * channels;
    if (from_y < 0 || from_y >= in.size.height) {
      std::memset(row, 0, static_cast<size_t>(output.width) * static_cast<size_t>(channels));
      continue;
    }
    const uint8_t* from = in.origin + from_y * in.stride;
    const int begin = std::clamp(-shift_x, 0, output.width);
    const int end = std::clamp(in.size.width - shift_x, begin, output.width);
    std::memset(row, 0, static_cast<size_t>(begin) * static_cast<size_t>(channels));
    std::memset(row + int64_t{end} * channels,
                0,
                static_cast<size_t>(output.width - end) * static_cast<size_t>(channels));
    if (!drawn.flip) {
      std::memcpy(row + int64_t{begin} * channels,
                  from + int64_t{begin + shift_x} * channels,
                  static_cast<size_t>(end - begin) * static_cast<size_t>(channels));
      continue;
    }
    const uint8_t* last = from + int64_t{in.size.width - 1 - shift_x} * channels;
    for (int x = begin; x < end; ++x)
      for (int c = 0; c < channels; ++c)
        row[int64_t{x} * channels + c] = last[c - int64_t{x} * channels];
  }
}

// The input pixel at the centre of output pixel j.
int nearest(const ResampleAxis& axis, int j) {
  const auto pixel = static_cast<int>(std::floor(axis.begin + (j + 0.5) * axis.scale));
  return std::clamp(pixel, axis.low, axis.high - 1);
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

PixelView view_of_pixels(const StoredImage& stored) {
  return {reinterpret_cast<const uint8_t*>(stored.bytes.data()),
          int64_t{stored.size.width} * stored.channels,
          stored.channels,
          stored.size};
}

}  // namespace

void require_size_of_image(const Mask& mask, ImageSize image) {
  if (mask.size == image) return;
  const bool turned = mask.size == ImageSize{image.width, image.height};
  throw DataError(
      "the mask has {} x {} pixels, but the image {} x {}; allowed: the same size{}",
      mask.size.width,
      mask.size.height,
      image.width,
      image.height,
      turned ? " (an EXIF orientation of the image is ignored: write the image turned)" : "");
}

ImagePipeline& ImagePipeline::of_this_thread() {
  thread_local ImagePipeline pipeline;
  return pipeline;
}

// Decodes the region that the axes cover and sets up the resampler for it. Unless `in_full`, the
// decoder shrinks the image as far as the axes' scales allow.
PixelView ImagePipeline::fetch(const StoredImage& stored,
                               ResampleAxis rows,
                               ResampleAxis columns,
                               bool in_full) {
  if (stored.pixels) {
    resampler_.set(rows, columns);
    return view_of_pixels(stored);
  }
  const int denominator =
      in_full ? 1 : decoder_.denominator_for(std::min(rows.scale, columns.scale));
  const ImageSize shrunk = decoder_.shrunk(denominator);
  const ImageRegion region = resampler_.set(shrink(rows, denominator, shrunk.height),
                                            shrink(columns, denominator, shrunk.width));
  return decoder_.decode(denominator, region);
}

PixelView ImagePipeline::resampled(const PixelView& view, ImageSize size) {
  scratch_.resize(static_cast<size_t>(size.height) * static_cast<size_t>(size.width) *
                  static_cast<size_t>(view.channels));
  resampler_.run(view, false, scratch_.data());
  return {scratch_.data(), int64_t{size.width} * view.channels, view.channels, size};
}

void ImagePipeline::run(const PipelineSettings& settings,
                        const ImageStore& store,
                        int64_t index,
                        int64_t sample,
                        int64_t epoch,
                        uint64_t seed,
                        bool augment,
                        uint8_t* out,
                        int32_t* classes,
                        PipelineTimes* times) {
  const int64_t start = times != nullptr ? now_ns() : 0;
  const StoredImage stored = store.load(index, buffer_);
  const int64_t loaded = times != nullptr ? now_ns() : 0;
  const ImageSize size = size_of(stored);
  const ImageSize output = settings.output;
  Augmentation drawn;
  if (augment) drawn = draw_augmentation(settings.augment, size, seed, epoch, sample);
  const bool crop = augment && settings.augment.random_resized_crop.has_value();
  const bool as_stored = !crop && settings.resize == 0;
  const bool shifted = drawn.shift_y != 0 || drawn.shift_x != 0;
  int64_t decoded = 0;
  const auto [rows, columns] = as_stored ? axes_of_crop({0, size.height, 0, size.width}, output)
                               : crop
                                   ? axes_of_crop(drawn.crop, output)
                                   : axes_of_centre(size, resized(size, settings.resize), output);
  if (as_stored) {
    LOCKSTEP_CHECK(stored.pixels && size == output);
    if (times != nullptr) decoded = now_ns();
    shift_and_flip(view_of_pixels(stored), drawn, output, out);
  } else {
    const PixelView view = fetch(stored, rows, columns, !augment || settings.exact_jpeg);
    if (times != nullptr) decoded = now_ns();
    if (!shifted) {
      resampler_.run(view, drawn.flip, out);
    } else {
      shift_and_flip(resampled(view, output), drawn, output, out);
    }
  }
  if (augment && settings.augment.colour_jitter)
    jitter_colours(drawn, int64_t{output.height} * output.width, out);
  if (classes != nullptr) write_classes(store, index, size, rows, columns, drawn, classes);
  if (times == nullptr) return;
  times->load += loaded - start;
  times->decode += decoded - loaded;
  times->transform += now_ns() - decoded;
}

void ImagePipeline::write_classes(const ImageStore& store,
                                  int64_t index,
                                  ImageSize size,
                                  const ResampleAxis& rows,
                                  const ResampleAxis& columns,
                                  const Augmentation& drawn,
                                  int32_t* out) {
  constexpr int kPadding = -1;
  store.load_mask(index, &mask_);
  if (mask_.classes.empty()) {
    std::fill_n(out, int64_t{rows.outputs} * columns.outputs, -1);
    return;
  }
  require_size_of_image(mask_, size);
  mask_columns_.resize(static_cast<size_t>(columns.outputs));
  for (int x = 0; x < columns.outputs; ++x) {
    const int from = (drawn.flip ? columns.outputs - 1 - x : x) + drawn.shift_x;
    const bool inside = from >= 0 && from < columns.outputs;
    mask_columns_[static_cast<size_t>(x)] = inside ? nearest(columns, from) : kPadding;
  }
  for (int y = 0; y < rows.outputs; ++y, out += columns.outputs) {
    const int from = y + drawn.shift_y;
    if (from < 0 || from >= rows.outputs) {
      std::fill_n(out, columns.outputs, -1);
      continue;
    }
    const int32_t* const row = mask_.classes.data() + int64_t{nearest(rows, from)} * size.width;
    for (int x = 0; x < columns.outputs; ++x) {
      const int column = mask_columns_[static_cast<size_t>(x)];
      out[x] = column == kPadding ? -1 : row[column];
    }
  }
}

PixelView ImagePipeline::decode_whole(const StoredImage& stored, int64_t shorter_side) {
  const ImageSize size = size_of(stored);
  if (shorter_side <= 0)
    return stored.pixels ? view_of_pixels(stored)
                         : decoder_.decode(1, {0, size.height, 0, size.width});
  const ImageSize whole = resized(size, shorter_side);
  const auto [rows, columns] = axes_of_centre(size, whole, whole);
  return resampled(fetch(stored, rows, columns, /*in_full=*/true), whole);
}

}  // namespace lockstep::data
