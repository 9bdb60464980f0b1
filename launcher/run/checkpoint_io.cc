#include "launcher/run/checkpoint_io.h"

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/checkpoint/format/file_layout.h"
#include "runtime/checkpoint/format/preprocessing.h"
#include "runtime/config/preprocessing.h"
#include "runtime/data/dataset.h"

namespace lockstep::launcher {

models::ModelIo io_of_weights(const models::OpenedModel& model,
                              const checkpoint::CheckpointState& state) {
  return model.io_of_weights([&](const std::string& name) -> std::optional<std::vector<int64_t>> {
    for (const checkpoint::NamedSlice& slice : state.layout) {
      if (slice.name == name) return checkpoint::file_extents(slice);
    }
    return std::nullopt;
  });
}

models::ModelIo io_of_run(const run::OpenedConfig& opened,
                          const checkpoint::CheckpointState& state,
                          const std::string& origin) {
  models::ModelIo io = io_of_weights(*opened.model, state);
  if (opened.model->traits().input != config::ModelInput::kImages) return io;
  if (const auto kept = checkpoint::kept_preprocessing(state, origin)) {
    if (const auto images = config::preprocessing_of(*kept).images) {
      io.height = images->height;
      io.width = images->width;
      return io;
    }
  }
  io.height = io.width = opened.config.data.image.size;
  if (io.height > 0) return io;
  try {
    // The evaluation data alone, if there are any.
    for (const bool need_train : {false, true}) {
      const data::DataSummary images =
          data::open_data(
              opened.config.data, opened.model->traits(), opened.config.seed, need_train)
              .summary;
      io.height = images.height;
      io.width = images.width;
      if (io.height > 0) break;
    }
  } catch (const DataError& error) {
    throw DataError("the size of the images is known from the data alone: {}", error.what());
  }
  return io;
}

}  // namespace lockstep::launcher
