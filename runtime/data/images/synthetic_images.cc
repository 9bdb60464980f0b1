#include "runtime/data/images/synthetic_images.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/rng.h"

namespace lockstep::data {
namespace {

constexpr int64_t kTableImages = 4096;
constexpr int64_t kTableBytes = int64_t{64} << 20;
constexpr int kCells = 8;         // per side; a class is a pattern of light and dark cells
constexpr uint32_t kShade = 40;   // how much lighter or darker than the middle a cell is
constexpr uint32_t kNoise = 128;  // number of values of a pixel's noise

// Random streams of one seed, different from those of synthetic.cc.
enum Draw : uint32_t { kLabels = 16, kShades, kPixels };

RngStream stream_of(uint64_t seed, Draw draw) {
  return {.seed = seed, .step = 0, .lane = 0, .purpose = kRngSynthetic | uint32_t{draw}};
}

// Which cells are light, a bit each, in every channel of the images of a class.
using Cells = std::array<uint64_t, 16>;

Cells cells_of(uint64_t seed, int64_t label, int64_t channels) {
  Cells cells{};
  for (int64_t c = 0; c < channels; ++c) {
    const Philox4 block = philox(stream_of(seed, kShades), static_cast<uint64_t>(label * 16 + c));
    cells[static_cast<size_t>(c)] = uint64_t{block.word[0]} << 32 | block.word[1];
  }
  return cells;
}

int64_t cell_at(int64_t y, int64_t x, int64_t height, int64_t width) {
  return y * kCells / height * kCells + x * kCells / width;
}

// The class of a pixel is the number of channels in which its cell is light.
void write_mask(const SyntheticConfig& synthetic, uint64_t seed, int32_t label, Mask* mask) {
  const Cells cells = cells_of(seed, label, synthetic.channels);
  mask->size = {static_cast<int>(synthetic.height), static_cast<int>(synthetic.width)};
  mask->classes.clear();
  for (int64_t y = 0; y < synthetic.height; ++y)
    for (int64_t x = 0; x < synthetic.width; ++x) {
      const int64_t cell = cell_at(y, x, synthetic.height, synthetic.width);
      int64_t light = 0;
      for (const uint64_t bits : cells) light += static_cast<int64_t>(bits >> cell & 1);
      mask->classes.push_back(static_cast<int32_t>(std::min(light, synthetic.classes - 1)));
    }
}

}  // namespace

ImageStores make_synthetic_images(const SyntheticConfig& synthetic,
                                  uint64_t seed,
                                  bool need_train,
                                  bool masks) {
  ImageStores stores;
  stores.classes = synthetic.classes;
  stores.kind = "synthetic images";
  if (!need_train) return stores;
  const int64_t height = synthetic.height, width = synthetic.width, channels = synthetic.channels;
  const int64_t row_elems = width * channels, image_elems = height * row_elems;
  const int64_t images =
      std::clamp<int64_t>(kTableBytes / image_elems, 1, std::min(synthetic.samples, kTableImages));
  auto pixels = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(images * image_elems));
  PixelArray array;
  const RngStream labels = stream_of(seed, kLabels), noise = stream_of(seed, kPixels);
  auto* next = reinterpret_cast<uint8_t*>(pixels->data());
  for (int64_t image = 0; image < images; ++image) {
    const uint32_t label = bounded_from_word(philox_word(labels, static_cast<uint64_t>(image)),
                                             static_cast<uint32_t>(synthetic.classes));
    array.labels.push_back(static_cast<int32_t>(label));
    const Cells cells = cells_of(seed, label, channels);
    Philox4 block{};
    for (int64_t i = 0; i < image_elems; ++i) {
      if (i % 16 == 0)
        block = philox(noise, static_cast<uint64_t>(image * ((image_elems + 15) / 16) + i / 16));
      const int64_t y = i / row_elems, x = i % row_elems / channels, c = i % channels;
      const int64_t cell = cell_at(y, x, height, width);
      const uint64_t bits = cells[static_cast<size_t>(c)];
      const uint64_t light = bits >> cell & 1;
      const uint32_t word = block.word[i % 16 / 4];
      const uint32_t byte = word >> (i % 4 * 8) & 0xff;
      const uint32_t shade = light != 0 ? 2 * kShade : 0;
      *next++ = static_cast<uint8_t>(128 - kShade - kNoise / 2 + shade + byte * kNoise / 256);
    }
  }
  array.pixels = *pixels;
  array.heap_bytes = static_cast<int64_t>(pixels->size());
  array.owner = pixels;
  array.size = {static_cast<int>(height), static_cast<int>(width)};
  array.channels = static_cast<int>(channels);
  array.name = "synthetic";
  if (masks)
    array.load_mask = [synthetic, seed, of_images = array.labels](int64_t index, Mask* mask) {
      write_mask(synthetic, seed, of_images[static_cast<size_t>(index)], mask);
    };
  array.samples = synthetic.samples;
  stores.train = make_pixel_store(std::move(array));
  return stores;
}

}  // namespace lockstep::data
