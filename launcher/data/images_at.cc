#include "launcher/data/images_at.h"

#include <utility>

#include "runtime/data/format.h"

namespace lockstep::launcher {

std::optional<data::ImageStores> open_images_at(const std::string& path, bool skip_bad) {
  auto source = data::image_source_at(path);
  if (!source) return std::nullopt;
  DataConfig config;
  config.source = std::move(*source);
  if (skip_bad) {
    config.bad_records = BadRecords::kSkip;
    config.max_bad_fraction = 1;
  }
  const config::ModelTraits model{.input = config::ModelInput::kImages};
  data::OpenedSource opened = data::open_source(config, model, /*seed=*/0, /*need_train=*/true);
  return std::move(std::get<data::ImageStores>(opened));
}

}  // namespace lockstep::launcher
