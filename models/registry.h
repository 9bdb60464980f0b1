#pragma once
// From the config's model section to a graph.

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/config/run_config.h"
#include "runtime/graph/builder.h"

namespace lockstep {

// What the data says about the model's ends.
struct ModelIo {
  int64_t features = 0;        // inputs of an MLP
  int64_t classes = 0;         // labels, or vocabulary; 0 where targets are values
  int64_t target_columns = 0;  // values to predict; 0 where targets are labels
  int64_t vocabulary = 0;      // of texts whose targets are no tokens; else 0
  // Of images, 0 and empty where inputs are something else.
  int64_t height = 0, width = 0, channels = 0;
  std::vector<float> mean = {}, std = {};  // (channels) each, of pixels in [0, 1]
};

ModelTraits traits_of(const ModelConfig& model);

// A config of every family, as it is by default.
std::vector<ModelConfig> all_models();

// The sections of the models of which it is true, each with `before` in front: "resnet, vgg or
// lenet".
std::string sections_where(const std::function<bool(const ModelTraits&)>& is_true,
                           const std::string& before = "");

// The traits of the models whose checkpoints have a tensor by which they are known; none where that
// is nobody's.
std::optional<ModelTraits> traits_by_tensors(
    const std::function<bool(const std::string& name)>& has_tensor);

// Checks the model's own fields, and the other sections' fields that only some models go with.
// Throws ConfigError.
void check_model(const RunConfig& config);

// What check_model() would say of the model's own fields, and all other reasons that can be found at once. Empty:
// there are none.
std::vector<std::string> problems_of_model(const ModelConfig& model);

// Refuses train.class_weights where there are no classes or, once outputs are known, another number
// of them. Throws ConfigError.
void check_class_weights(const TrainConfig& train, const ModelTraits& traits);

// The config with what it leaves to the data filled in (outputs, vocabulary). Throws ConfigError
// where both are given and do not agree.
ModelConfig resolve_model(const ModelConfig& model, const ModelIo& io);

// The config with which the model has the parameters of these names, where it has others by itself: those that
// a checkpoint of an older revision recorded, which had another rule. Nothing if no such config is known, or
// none is needed.
std::optional<ModelConfig> with_recorded_parameters(const ModelConfig& model,
                                                    const std::set<std::string>& names);

// Builds the graph of one lane of `lane_batch` samples; a training graph is differentiated. `model`
// must be resolved. `tokens` shortens the sequences of a language model below its context; 0: the
// whole context.
Graph build_model(const ModelConfig& model,
                  const ModelIo& io,
                  int64_t lane_batch,
                  const GraphOptions& options,
                  int64_t tokens = 0);

// The first node of a network by which the output for a sample depends on other samples of the batch, on its place among
// them or on how many there are; empty: there is none. Batch norms do not count.
std::string mixing_node(const ModelConfig& model,
                        const ModelIo& io,
                        int64_t global_batch,
                        int64_t lane_batch);

// Samples of the smallest graph that build_model() can make.
int64_t fewest_samples(const ModelConfig& model);

// Floating-point operations of one sample's forward and backward pass, as MFU counts them: 6 per
// parameter that multiplies each token or sample and, for causal attention, 6 * layers * width *
// context per token; for images three times the forward pass of convolutions and linear layers.
double model_flops_per_sample(const ModelConfig& model, const ModelIo& io);

// Extents of the tensor of this name, as files hold it; none where there is no such tensor.
using ExtentsOf = std::function<std::optional<std::vector<int64_t>>(const std::string& name)>;

// Inputs, classes and the size of images, read off the first and the last tensors of weights that
// exist already, so that a model can be built without its data. Where a network takes images of any
// size, or a tensor is missing, a usual value stands in: what does not fit shows when shapes are
// compared.
ModelIo io_of_weights(const ModelConfig& model, const ExtentsOf& extents_of);

}  // namespace lockstep
