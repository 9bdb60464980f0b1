#include "runtime/data/images/png.h"

#include <fmt/core.h>
#include <png.h>

#include <array>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/data/big_endian.h"

namespace lockstep::data {
namespace {

constexpr std::array<uint8_t, 8> kSignature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
constexpr size_t kHeaderBytes = 33;  // signature, and IHDR with length, type and checksum
constexpr size_t kMaxMessageBytes = 200;

// The state of libpng's callbacks: the rest of the file, and the error message.
struct ReadState {
  std::span<const std::byte> left;
  char text[kMaxMessageBytes] = {};
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* state = static_cast<ReadState*>(png_get_error_ptr(png));
  std::strncpy(state->text, message, kMaxMessageBytes - 1);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void on_read(png_structp png, png_bytep to, size_t bytes) {
  auto* state = static_cast<ReadState*>(png_get_io_ptr(png));
  if (bytes > state->left.size()) png_error(png, "the file is truncated");
  std::memcpy(to, state->left.data(), bytes);
  state->left = state->left.subspan(bytes);
}

class PngReader {
 public:
  explicit PngReader(ReadState* state) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, state, on_error, on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) throw DataError("libpng cannot start: out of memory");
    png_set_read_fn(png_, state, on_read);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // size_of() checks the size
    png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_QUIET_USE);
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  png_structp png() { return png_; }
  png_infop info() { return info_; }

 private:
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

// Reads the header and requests 8-bit RGB or, with `numbers`, a byte for each number. Returns false
// if libpng failed.
bool begin(png_structp png, png_infop info, bool numbers) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_read_info(png, info);
  if (numbers) {
    png_set_packing(png);
  } else {
    png_set_expand(png);
    png_set_scale_16(png);
    png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
  }
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  return true;
}

bool read_rows(png_structp png, uint8_t** rows) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_read_image(png, rows);
  png_read_end(png, nullptr);
  return true;
}

// Throws DataError unless the pixels are numbers of up to 8 bits.
void require_numbers(std::span<const std::byte> bytes) {
  const auto bits = static_cast<int>(bytes[24]), kind = static_cast<int>(bytes[25]);
  if ((kind == PNG_COLOR_TYPE_GRAY && bits <= 8) || kind == PNG_COLOR_TYPE_PALETTE) return;
  throw DataError(
      "{}; allowed: grey of up to 8 bits, or a palette, whose numbers are the classes, as from "
      "PIL's Image.fromarray(classes.astype(numpy.uint8))",
      kind == PNG_COLOR_TYPE_GRAY         ? "has 16 bits a pixel"
      : kind == PNG_COLOR_TYPE_GRAY_ALPHA ? "is grey with transparency"
                                          : "has RGB colours in place of class numbers");
}

}  // namespace

bool PngDecoder::is_png(std::span<const std::byte> bytes) {
  return bytes.size() >= kSignature.size() &&
         std::memcmp(bytes.data(), kSignature.data(), kSignature.size()) == 0;
}

ImageSize PngDecoder::size_of(std::span<const std::byte> bytes) {
  if (!is_png(bytes) || bytes.size() < kHeaderBytes || std::memcmp(&bytes[12], "IHDR", 4) != 0)
    throw DataError("damaged PNG: no header");
  const int64_t width = big_endian_32(bytes, 16), height = big_endian_32(bytes, 20);
  constexpr int64_t kMaxSide = PNG_UINT_31_MAX;
  if (width < 1 || height < 1 || width > kMaxSide || height > kMaxSide ||
      height > kMaxPixels / width)
    throw DataError("a PNG of {} x {} pixels; allowed: 1 to {} pixels", width, height, kMaxPixels);
  // Deflate compresses by at most 1032 to 1. So a header that claims too many pixels for the file's
  // size is damaged, and no memory is allocated for it.
  if (height * (width / 8) > 1040 * static_cast<int64_t>(bytes.size()))
    throw DataError("damaged PNG: the file is truncated");
  return {static_cast<int>(height), static_cast<int>(width)};
}

PixelView PngDecoder::decode(std::span<const std::byte> bytes) { return decode_as(bytes, false); }

PixelView PngDecoder::decode_numbers(std::span<const std::byte> bytes) {
  return decode_as(bytes, true);
}

PixelView PngDecoder::decode_as(std::span<const std::byte> bytes, bool numbers) {
  const ImageSize size = size_of(bytes);
  if (numbers) require_numbers(bytes);
  const int channels = numbers ? 1 : 3;
  ReadState state{bytes, {}};
  PngReader reader(&state);
  if (!begin(reader.png(), reader.info(), numbers)) throw DataError("damaged PNG: {}", state.text);
  const size_t stride = png_get_rowbytes(reader.png(), reader.info());
  LOCKSTEP_CHECK(stride == static_cast<size_t>(channels) * size.width, "a row of {} bytes", stride);
  const size_t needed = stride * size.height;
  if (pixels_.size() < needed) pixels_.resize(needed);
  rows_.resize(size.height);
  for (int y = 0; y < size.height; ++y) rows_[y] = pixels_.data() + stride * y;
  if (!read_rows(reader.png(), rows_.data())) throw DataError("damaged PNG: {}", state.text);
  return {pixels_.data(), static_cast<int64_t>(stride), channels, size};
}

std::string encode_png(const PixelView& image) {
  LOCKSTEP_CHECK(image.channels == 1 || image.channels == 3, "{} channels ", image.channels);
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.size.width);
  header.height = static_cast<png_uint_32>(image.size.height);
  header.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  const auto stride = static_cast<png_int_32>(image.stride);
  std::string file(PNG_IMAGE_PNG_SIZE_MAX(header), '\0');
  png_alloc_size_t bytes = file.size();
  const int written =
      png_image_write_to_memory(&header, file.data(), &bytes, 0, image.origin, stride, nullptr);
  if (written == 0) throw Error(ExitCode::kInternal, fmt::format("libpng: {}", header.message));
  file.resize(bytes);
  return file;
}

}  // namespace lockstep::data
