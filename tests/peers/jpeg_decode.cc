// jpeg_decode TAR... [--repeats N]: the JPEGs of tar files, decoded by a plain loop of
// libjpeg-turbo's functions, by Lockstep's decoder, and by Lockstep's whole pipeline to 224 x 224
// for evaluation and training. Images a second of processor time, so that other programs do not
// count; the four take turns, and the best turn of each is printed, one JSON object per file.

#include <cstdio>  // jpeglib.h needs it first

#include <fmt/core.h>
#include <jpeglib.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/data/images/image_pipeline.h"
#include "runtime/data/images/tar.h"

namespace lockstep::test {
namespace {

constexpr double kTurnSeconds = 0.5;

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class TarImages final : public data::ImageStore {
 public:
  explicit TarImages(const std::string& path) : file_(path) {
    data::TarReader reader(file_.bytes(), path);
    data::TarMember member;
    while (reader.next(&member)) images_.push_back(member.data);
    if (images_.empty()) throw DataError("{}: empty", path);
  }
  int64_t count() const override { return static_cast<int64_t>(images_.size()); }
  int32_t label(int64_t) const override { return 0; }
  std::string name(int64_t index) const override { return std::to_string(index); }
  data::StoredImage load(int64_t index, std::vector<std::byte>&) const override {
    data::StoredImage image;
    image.bytes = images_[static_cast<size_t>(index)];
    return image;
  }
  bool encoded() const override { return true; }
  int64_t resident_bytes() const override { return 0; }

 private:
  MappedFile file_;
  std::vector<std::span<const std::byte>> images_;
};

// The example of libjpeg's manual, with everything kept that can be kept from image to image.
class PlainLoop {
 public:
  PlainLoop() {
    info_.err = jpeg_std_error(&errors_);
    jpeg_create_decompress(&info_);
  }
  ~PlainLoop() { jpeg_destroy_decompress(&info_); }
  void decode(std::span<const std::byte> bytes) {
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&info_, TRUE);
    info_.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info_);
    const size_t stride = size_t{3} * info_.output_width;
    if (pixels_.size() < stride * info_.output_height) pixels_.resize(stride * info_.output_height);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels_.data() + stride * info_.output_scanline;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
  }

 private:
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  std::vector<uint8_t> pixels_;
};

void measure(const std::string& path, int repeats) {
  const TarImages store(path);
  PlainLoop plain;
  data::ImagePipeline& pipeline = data::ImagePipeline::of_this_thread();
  data::PipelineSettings evaluation, training;
  evaluation.output = training.output = {224, 224};
  evaluation.resize = training.resize = 256;
  training.augment.random_resized_crop.emplace();
  training.augment.horizontal_flip = 0.5f;
  std::vector<uint8_t> out(224 * 224 * 3);
  int64_t epoch = 0;
  std::vector<std::byte>& buffer = pipeline.buffer();
  const std::array<std::function<void(int64_t)>, 4> contestants{
      [&](int64_t i) { plain.decode(store.load(i, buffer).bytes); },
      [&](int64_t i) { pipeline.decode_whole(store.load(i, buffer), 0); },
      [&](int64_t i) { pipeline.run(evaluation, store, i, i, 0, 1, false, out.data()); },
      [&](int64_t i) { pipeline.run(training, store, i, i, epoch, 1, true, out.data()); }};
  std::array<double, 4> best{};
  for (int repeat = -1; repeat < repeats; ++repeat)  // the first turns only warm up
    for (size_t c = 0; c < contestants.size(); ++c) {
      const double start = cpu_seconds();
      int64_t images = 0;
      for (; cpu_seconds() - start < kTurnSeconds; ++epoch)  // whole rounds of all images
        for (int64_t i = 0; i < store.count(); ++i, ++images) contestants[c](i);
      const double rate = static_cast<double>(images) / (cpu_seconds() - start);
      if (repeat >= 0) best[c] = std::max(best[c], rate);
    }
  fmt::print(
      "{{\"file\": \"{}\", \"images\": {}, \"plain_per_s\": {:.1f}, \"decode_per_s\": {:.1f}, "
      "\"decode_ratio\": {:.3f}, \"evaluation_per_s\": {:.1f}, \"training_per_s\": {:.1f}}}\n",
      path,
      store.count(),
      best[0],
      best[1],
      best[1] / best[0],
      best[2],
      best[3]);
  std::fflush(stdout);
}

}  // namespace
}  // namespace lockstep::test

int main(int argc, char** argv) {
  int repeats = 5;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--repeats") == 0 && i + 1 < argc)
      repeats = std::atoi(argv[++i]);
    else
      files.emplace_back(argv[i]);
  }
  if (files.empty()) {
    std::fprintf(stderr, "usage: jpeg_decode TAR... [--repeats N]\n");
    return 2;
  }
  try {
    for (const std::string& file : files) lockstep::test::measure(file, repeats);
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "jpeg_decode: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
