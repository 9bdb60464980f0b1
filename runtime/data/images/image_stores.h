#pragma once
// The sources of pictures. Each opener checks what it finds and throws DataError that names the
// file.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/run_config.h"
#include "runtime/data/images/image_store.h"

namespace lockstep {

struct ImageStores {
  std::shared_ptr<const ImageStore> train;  // null unless asked for
  std::shared_ptr<const ImageStore> eval;   // null when the config has no evaluation data
  int64_t classes = 0;
  int64_t bad_records = 0;               // left out or replaced at opening
  std::string kind;                      // for the log: "CIFAR-10"
  std::vector<std::string> class_names;  // (classes), or empty
};

// Pixels and labels in memory.
struct PixelArray {
  std::shared_ptr<const void> owner;  // of the pixels
  std::span<const std::byte> pixels;  // (stored, height, width, channels)
  std::vector<int32_t> labels;        // (stored)
  ImageSize size;
  int channels = 0;
  std::string name;        // of the file, for messages
  int64_t samples = 0;     // 0: as many as are stored; more repeat them
  int64_t heap_bytes = 0;  // of the pixels
};
std::shared_ptr<const ImageStore> make_pixel_store(PixelArray array);

// Opens the source of `config`, which is one of those below. Throws ConfigError where it has no
// pictures.
ImageStores open_image_stores(const DataConfig& config, uint64_t seed, bool need_train);

ImageStores open_cifar(const DataConfig& config, const CifarConfig& cifar, bool need_train);
ImageStores open_image_folder(const DataConfig& config,
                              const ImageFolderConfig& folder,
                              bool need_train);
ImageStores open_tar_shards(const DataConfig& config,
                            const TarShardsConfig& shards,
                            bool need_train);
ImageStores open_records(const DataConfig& config, const RecordsConfig& records, bool need_train);
ImageStores open_idx_images(const DataConfig& config, const IdxConfig& idx, bool need_train);
ImageStores open_synthetic_images(const SyntheticConfig& synthetic, uint64_t seed, bool need_train);

// Bad records that are found at opening: throws DataError with FAIL; else counts and tells them,
// and at the end throws where they are too many.
class BadAtOpening {
 public:
  explicit BadAtOpening(const DataConfig& config) : config_(config) {}
  void add(const std::string& what);
  // How often the next good record is to be repeated: with REPLACE, for each bad one before it.
  size_t take_waiting() { return std::exchange(waiting_, 0); }
  void check(int64_t records, const std::string& name) const;  // of all, bad ones included
  int64_t count() const { return count_; }

 private:
  const DataConfig& config_;
  int64_t count_ = 0;
  size_t waiting_ = 0;
  std::string first_;
};

}  // namespace lockstep
