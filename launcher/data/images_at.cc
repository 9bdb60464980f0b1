#include "launcher/data/images_at.h"

#include <utility>

#include "runtime/data/format.h"
#include "runtime/data/target_warnings.h"

namespace lockstep {

std::optional<ImageStores> open_images_at(const std::string& path, bool skip_bad) {
  auto source = image_source_at(path);
  if (!source) return std::nullopt;
  DataConfig config;
  config.source = std::move(*source);
  if (skip_bad) {
    config.bad_records = BadRecords::kSkip;
    config.max_bad_fraction = 1;
  }
  const ModelTraits model{.input = ModelInput::kImages};
  OpenedSource opened = format_of(config)->open(model, /*seed=*/0, /*need_train=*/true);
  add_target_warnings(config, model, &opened);
  return std::move(std::get<ImageStores>(opened));
}

}  // namespace lockstep
