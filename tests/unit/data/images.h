#pragma once
// Images for tests: made by the libraries' encoders, and decoded by plain loops to compare with.

#include <cstdio>  // jpeglib.h needs it first

#include <jpeglib.h>
#include <png.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/images/image.h"

namespace lockstep::test {

// Pixels (height, width, channels).
struct Image {
  int height = 0, width = 0, channels = 3;
  std::vector<uint8_t> pixels;
  const uint8_t* at(int y, int x) const {
    return &pixels[(static_cast<size_t>(y) * width + x) * channels];
  }
};

// Smooth shades with edges: what JPEG is made for. `kind` makes different ones.
inline Image make_image(int height, int width, int channels = 3, int kind = 0) {
  Image image{height, width, channels, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c) {
        const int edge = (x * 3 + y * 2 + kind * 17) / 23 % 2 * 60;
        image.pixels.push_back(
            static_cast<uint8_t>((x * (c + 2) + y * (3 - c) + kind * 31 + edge) % 256));
      }
  return image;
}

struct JpegOptions {
  int quality = 90;
  bool progressive = false;
  J_COLOR_SPACE stored = JCS_YCbCr;  // YCCK and CMYK from 4 channels, gray from 1
  int subsampling = 2;               // horizontal and, unless given, vertical, of the luma
  int subsampling_down = 0;          // vertical; 0: as horizontal
  int chroma_down = 1;               // vertical, of the first chroma channel
  bool adobe = true;
};

inline std::string encode_jpeg(const Image& image, const JpegOptions& options = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_height = image.height;
  info.image_width = image.width;
  info.input_components = image.channels;
  info.in_color_space = image.channels == 1   ? JCS_GRAYSCALE
                        : image.channels == 3 ? JCS_RGB
                                              : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, image.channels == 1 ? JCS_GRAYSCALE : options.stored);
  jpeg_set_quality(&info, options.quality, TRUE);
  if (image.channels > 1) {
    info.comp_info[0].h_samp_factor = options.subsampling;
    info.comp_info[0].v_samp_factor =
        options.subsampling_down > 0 ? options.subsampling_down : options.subsampling;
    info.comp_info[1].v_samp_factor = options.chroma_down;
  }
  if (options.progressive) jpeg_simple_progression(&info);
  if (!options.adobe) info.write_Adobe_marker = FALSE;
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPLE*>(image.at(static_cast<int>(info.next_scanline), 0));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string bytes(reinterpret_cast<char*>(memory), size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return bytes;
}

// The plain loop of libjpeg's example: RGB, or CMYK as stored; ends the process on errors.
inline Image decode_plainly(std::span<const std::byte> bytes, int denominator = 1) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&info, TRUE);
  const bool cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  info.scale_num = 1;
  info.scale_denom = denominator;
  jpeg_start_decompress(&info);
  Image image{static_cast<int>(info.output_height),
              static_cast<int>(info.output_width),
              info.output_components,
              {}};
  const size_t stride = size_t{info.output_width} * info.output_components;
  image.pixels.resize(stride * info.output_height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = image.pixels.data() + stride * info.output_scanline;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return image;
}

struct PngOptions {
  int type = PNG_COLOR_TYPE_RGB;
  int depth = 8;
  bool interlaced = false;
};

// `rows` are packed as `options` says, `row_bytes` each.
inline std::string encode_png(int height,
                              int width,
                              const std::vector<uint8_t>& rows,
                              const PngOptions& options = {},
                              const std::vector<png_color>& palette = {}) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  std::string bytes;
  png_set_write_fn(
      png,
      &bytes,
      [](png_structp p, png_bytep data, size_t length) {
        static_cast<std::string*>(png_get_io_ptr(p))->append(reinterpret_cast<char*>(data), length);
      },
      nullptr);
  png_set_IHDR(png,
               info,
               width,
               height,
               options.depth,
               options.type,
               options.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  if (!palette.empty()) png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  png_write_info(png, info);
  const size_t row_bytes = rows.size() / height;
  std::vector<png_bytep> pointers;
  for (int y = 0; y < height; ++y)
    pointers.push_back(const_cast<png_bytep>(rows.data() + row_bytes * y));
  png_write_image(png, pointers.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

inline std::string encode_png(const Image& image) {
  return encode_png(image.height,
                    image.width,
                    image.pixels,
                    {image.channels == 1   ? PNG_COLOR_TYPE_GRAY
                     : image.channels == 3 ? PNG_COLOR_TYPE_RGB
                                           : PNG_COLOR_TYPE_RGBA});
}

// Copy of a region of a decoder's image.
inline Image copy_of(const data::PixelView& view, const data::ImageRegion& region) {
  Image image{region.bottom - region.top, region.right - region.left, view.channels, {}};
  for (int y = region.top; y < region.bottom; ++y) {
    const uint8_t* row = view.origin + y * view.stride;
    image.pixels.insert(
        image.pixels.end(), row + region.left * view.channels, row + region.right * view.channels);
  }
  return image;
}

inline Image part_of(const Image& image, const data::ImageRegion& region) {
  data::PixelView view;
  view.origin = image.pixels.data();
  view.stride = int64_t{image.width} * image.channels;
  view.channels = image.channels;
  return copy_of(view, region);
}

}  // namespace lockstep::test
