#include "runtime/run/read_config.h"

#include "models/huggingface/folder.h"
#include "models/registry.h"
#include "runtime/config/parse.h"
#include "runtime/data/check_data.h"
#include "runtime/data/text/data_tokenizer.h"

namespace lockstep {

RunConfig read_config(const std::string& path, const std::vector<std::string>& overrides) {
  return read_config(read_config_text(path), path, overrides);
}

RunConfig read_config(const std::string& text,
                      const std::string& path,
                      const std::vector<std::string>& overrides) {
  RunConfig config = parse_config(text, path, overrides, huggingface::find_model);
  use_tokenizer_of_weights(traits_of(config.model).text_task == TextTask::kMaskedTokens, &config);
  check_data(config);
  check_model(config);
  check_data_for_model(config.data, traits_of(config.model));
  return config;
}

}  // namespace lockstep
