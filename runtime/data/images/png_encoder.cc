#include "runtime/data/images/png_encoder.h"

#include <fmt/core.h>
#include <png.h>

#include "runtime/base/error.h"

namespace lockstep::data {

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
