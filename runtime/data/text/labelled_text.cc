// data.labelled_text: not built yet.
#include "runtime/base/error.h"
#include "runtime/data/format.h"

namespace lockstep {
namespace {

class Format final : public FileFormat<LabelledTextConfig> {
 public:
  using FileFormat::FileFormat;
  void check() const override { throw ConfigError("data.labelled_text: not built yet"); }
  bool gives(ModelInput input) const override { return input == ModelInput::kTokens; }
  OpenedSource open(const ModelTraits&, uint64_t, bool) const override { LOCKSTEP_CHECK(false); }
  AssumedData assume(const MissingFile&) const override { LOCKSTEP_CHECK(false); }
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data,
                                              const LabelledTextConfig& config) {
  return std::make_unique<Format>(data, config);
}

}  // namespace lockstep
