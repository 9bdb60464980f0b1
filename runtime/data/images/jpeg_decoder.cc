#include "runtime/data/images/jpeg_decoder.h"

#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it first

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <vector>

#include "runtime/base/error.h"

namespace lockstep::data {
namespace {

constexpr int kMaxScans = 500;  // progressive files with more scans are made to waste time
// At the edges of a cropped row, upsampling lacks the neighbours that it reads in the full image.
constexpr int kCropMargin = 4;

// libjpeg's errors leave its C code by longjmp. The message is kept here.
struct ErrorState {
  jpeg_error_mgr manager;  // must be first, as libjpeg passes a pointer to it
  std::jmp_buf jump;
  char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void on_error(j_common_ptr info) {
  auto* errors = reinterpret_cast<ErrorState*>(info->err);
  errors->manager.format_message(info, errors->text);
  std::longjmp(errors->jump, 1);
}

// Warnings that do not affect the pixels. After any other warning libjpeg invents pixels.
bool is_harmless(int code) {
  return code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR;
}

void on_message(j_common_ptr info, int level) {
  if (level < 0 && !is_harmless(info->err->msg_code)) on_error(info);
}

void on_output(j_common_ptr) {}

void on_progress(j_common_ptr info) {
  auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
  if (decompress->input_scan_number <= kMaxScans) return;
  ERREXIT(decompress, JERR_BAD_PROGRESSION);
}

// Whether a region may be decoded without the rest of the image. libjpeg-turbo's functions for that
// give the same pixels as a full decode only if the chroma has one sample per block of 1, 2 or 4 x
// 1 or 2 pixels. Nearly all files do.
bool has_usual_sampling(const jpeg_decompress_struct& info) {
  const jpeg_component_info* components = info.comp_info;
  const int across = components[0].h_samp_factor, down = components[0].v_samp_factor;
  if (info.num_components == 1) return true;
  if ((across != 1 && across != 2 && across != 4) || down > 2) return false;
  for (int c = 1; c < info.num_components; ++c) {
    const bool one = components[c].h_samp_factor == 1 && components[c].v_samp_factor == 1;
    const bool luma = components[c].h_samp_factor == across && components[c].v_samp_factor == down;
    if (!one && !(c == 3 && luma)) return false;
  }
  return true;
}

uint8_t product(int a, int b) {
  const int scaled = a * b + 128;  // a * b / 255, rounded
  return static_cast<uint8_t>((scaled + (scaled >> 8)) >> 8);
}

// Converts a row from CMYK to RGB in place. `inverted`: 255 means no ink.
void cmyk_to_rgb(uint8_t* row, int width, bool inverted) {
  const uint8_t mask = inverted ? 0 : 0xff;
  for (int x = 0; x < width; ++x) {
    const uint8_t* from = row + 4 * x;
    const int black = from[3] ^ mask;
    const uint8_t red = product(from[0] ^ mask, black);
    const uint8_t green = product(from[1] ^ mask, black);
    const uint8_t blue = product(from[2] ^ mask, black);
    uint8_t* to = row + 3 * x;
    to[0] = red;
    to[1] = green;
    to[2] = blue;
  }
}

}  // namespace

struct JpegDecoder::State {
  jpeg_decompress_struct info{};
  ErrorState errors{};
  jpeg_progress_mgr progress{};
  std::vector<uint8_t> pixels;  // of the last image
  std::vector<uint8_t> discarded;

  // Runs `body`, which calls libjpeg. Returns false if libjpeg failed. As longjmp runs no
  // destructors, `body` must hold no objects that have one.
  template <typename Body>
  bool attempt(Body body) {
    if (setjmp(errors.jump) != 0) return false;
    body();
    return true;
  }

  [[noreturn]] void fail() {
    jpeg_abort_decompress(&info);
    throw DataError("damaged JPEG: {}", errors.text);
  }

  // Reads lines [from, to) into `rows`, `stride` bytes apart. With stride 0 they overwrite each
  // other.
  void read_lines(int from, int to, uint8_t* rows, size_t stride) {
    for (int line = from; line < to; ++line) {
      JSAMPROW row = rows + static_cast<size_t>(line - from) * stride;
      jpeg_read_scanlines(&info, &row, 1);
    }
  }
};

JpegDecoder::JpegDecoder() : state_(std::make_unique<State>()) {
  jpeg_decompress_struct& info = state_->info;
  info.err = jpeg_std_error(&state_->errors.manager);
  state_->errors.manager.error_exit = on_error;
  state_->errors.manager.emit_message = on_message;
  state_->errors.manager.output_message = on_output;
  state_->progress.progress_monitor = on_progress;
}

JpegDecoder::~JpegDecoder() { jpeg_destroy_decompress(&state_->info); }

// Creates a new libjpeg object for every image. A reused one would keep the tables of the image
// before, so that a damaged file without tables would decode to something that depends on it.
ImageSize JpegDecoder::open(std::span<const std::byte> bytes) {
  jpeg_decompress_struct& info = state_->info;
  const bool read = state_->attempt([this, &info, bytes] {
    jpeg_destroy_decompress(&info);
    jpeg_create_decompress(&info);
    info.progress = &state_->progress;
    jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&info, TRUE);
  });
  if (!read) state_->fail();
  const int64_t pixels = int64_t{info.image_height} * info.image_width;
  if (pixels > kMaxPixels) {
    jpeg_abort_decompress(&info);
    throw DataError("a JPEG of {} x {} pixels; allowed: up to {} pixels",
                    info.image_width,
                    info.image_height,
                    kMaxPixels);
  }
  // A block of 8 x 8 pixels takes at least a bit, with arithmetic coding somewhat less. So a header
  // that claims too many pixels for the file's size is damaged, and no memory is allocated for it.
  const int64_t max_pixels_per_byte = info.arith_code != FALSE ? 65536 : 1024;
  if (pixels / max_pixels_per_byte > static_cast<int64_t>(bytes.size())) {
    jpeg_abort_decompress(&info);
    throw DataError("damaged JPEG: {} bytes for {} x {} pixels; the file is truncated",
                    bytes.size(),
                    info.image_width,
                    info.image_height);
  }
  return {static_cast<int>(info.image_height), static_cast<int>(info.image_width)};
}

ImageSize JpegDecoder::shrunk(ImageSize size, int denominator) {
  return {(size.height + denominator - 1) / denominator,
          (size.width + denominator - 1) / denominator};
}

// Lines above and below the region pass only through the entropy decoder. The last line is always
// read: if it were skipped, libjpeg would not look at the end of the file and miss damage there.
PixelView JpegDecoder::decode(int denominator, const ImageRegion& wanted) {
  State& state = *state_;
  jpeg_decompress_struct& info = state.info;
  const bool cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(denominator);
  JDIMENSION left = 0, width = 0;
  int whole_width = 0;  // jpeg_crop_scanline() overwrites info.output_width
  ImageRegion region = wanted;
  const bool started = state.attempt([&] {
    jpeg_start_decompress(&info);
    whole_width = static_cast<int>(info.output_width);
    if (!has_usual_sampling(info))
      region = {0, static_cast<int>(info.output_height), 0, static_cast<int>(info.output_width)};
    const auto right = std::min<JDIMENSION>(info.output_width, region.right + kCropMargin);
    left = static_cast<JDIMENSION>(std::max(0, region.left - kCropMargin));
    width = right - left;
    if (width < info.output_width) jpeg_crop_scanline(&info, &left, &width);
  });
  if (!started) state.fail();
  const int height = static_cast<int>(info.output_height);
  const auto stride = static_cast<size_t>(width) * static_cast<size_t>(info.output_components);
  const auto needed = static_cast<size_t>(region.bottom - region.top) * stride;
  if (state.pixels.size() < needed) state.pixels.resize(needed);
  if (state.discarded.size() < stride) state.discarded.resize(stride);
  uint8_t* pixels = state.pixels.data();
  const bool finished = state.attempt([&] {
    if (region.top > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(region.top));
    state.read_lines(region.top, region.bottom, pixels, stride);
    if (region.bottom < height) {
      if (region.bottom < height - 1)
        jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(height - 1 - region.bottom));
      state.read_lines(height - 1, height, state.discarded.data(), 0);
    }
    jpeg_finish_decompress(&info);
  });
  if (!finished) state.fail();
  if (cmyk)
    for (int y = 0; y < region.bottom - region.top; ++y)
      cmyk_to_rgb(pixels + static_cast<size_t>(y) * stride,
                  static_cast<int>(width),
                  info.saw_Adobe_marker != FALSE);
  PixelView view;
  view.channels = 3;
  view.stride = static_cast<int64_t>(stride);
  view.origin = pixels - region.top * view.stride - int64_t{left} * view.channels;
  view.size = {height, whole_width};
  return view;
}

}  // namespace lockstep::data
