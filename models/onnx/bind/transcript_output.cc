#include "models/onnx/bind/transcript_output.h"

#include "runtime/base/error.h"
#include "runtime/config/limits.h"

namespace lockstep::onnx {
namespace {

const Value& input_of(const Network& network) {
  return network.values[static_cast<size_t>(network.inputs[0])];
}

}  // namespace

void check_transcript_output(const OnnxConfig& config,
                             const NetworkInputs& inputs,
                             const Network& network,
                             const Value& output,
                             int64_t samples) {
  if (!config.losses.empty())
    throw ConfigError("model.onnx.losses: not allowed with model.onnx.loss CTC");
  const Value& input = input_of(network);
  if (inputs.kind() != config::ModelInput::kFeatures || network.inputs.size() != 1 ||
      input.extents.size() != 3 || elements(input.extents) == 0)
    throw ConfigError(
        "model.onnx.loss: value is CTC, but {} has {} input{}, the first with extents {}; allowed: "
        "one input of FEATURES (N, T, F), such as frames of a spectrogram",
        config.file,
        network.inputs.size(),
        network.inputs.size() == 1 ? "" : "s",
        to_string(input.extents));
  const Extents& extents = output.extents;
  const bool is_floats = is_floating(output.type) && extents.size() == 3;
  if (!is_floats || extents[0] != samples) {
    const bool time_first = is_floats && extents[1] == samples;
    throw ConfigError(
        "model.onnx.output: \"{}\" of {} is {} with extents {} for {} sample{}; allowed with loss "
        "CTC: float (N, T, C), the scores of the symbols and the blank for each frame{}",
        output.name,
        config.file,
        name_of(output.type),
        to_string(extents),
        samples,
        samples == 1 ? "" : "s",
        time_first ? "; export the network with y.transpose(0, 1) as its output" : "");
  }
  if (extents[1] > input.extents[1])
    throw ConfigError(
        "model.onnx.output: \"{}\" of {} has {} frames for {} of the input; allowed with loss CTC: "
        "at most as many",
        output.name,
        config.file,
        extents[1],
        input.extents[1]);
  if (config.ctc_blank >= extents[2])
    config::refuse_value("model.onnx.ctc_blank",
                         config.ctc_blank,
                         "0 to {}, a class of \"{}\" of {}",
                         extents[2] - 1,
                         output.name,
                         config.file);
}

}  // namespace lockstep::onnx
