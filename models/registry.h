#pragma once
// From the config's model section to a graph.

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/config/run_config.h"
#include "runtime/graph/builder.h"

namespace lockstep::models {

class Model;

// What the data says about the model's inputs and outputs.
struct ModelIo {
  int64_t features = 0;        // inputs of an MLP
  int64_t classes = 0;         // labels, or vocabulary; 0 if targets are values
  int64_t target_columns = 0;  // values to predict; 0 if targets are labels
  // What a record of targets has, for models that name their targets.
  std::vector<config::TargetPart> targets = {};
  int64_t vocabulary = 0;  // of texts whose targets are not tokens; otherwise 0
  int64_t texts = 1;       // of a sample, for TextTask::kEmbeddings
  // For images; 0 and empty for other inputs.
  int64_t height = 0, width = 0, channels = 0;
  std::vector<float> mean = {}, std = {};  // (channels) each, of pixels in [0, 1]
};

// The batches for which a run will build graphs, so that checks can make networks that the run uses
// too.
struct RunBatches {
  int64_t global = 0;    // samples of a step; 0: no run follows
  int64_t lane = 0;      // of a lane; 0: not known yet
  bool answers = false;  // samples are pairs of answers (data.preferences)
};

// Returns the extents of the tensor of this name, as files hold it; nothing if there is no such
// tensor.
using ExtentsOf = std::function<std::optional<std::vector<int64_t>>(const std::string& name)>;

// The model of a config, opened: its traits are computed, and an ONNX file is read. A command opens
// its model once and passes it on to all stages. Immutable and thread-safe.
class OpenedModel {
 public:
  // Use open_model().
  OpenedModel(const ModelConfig& config, const RunBatches& run);
  OpenedModel(const OpenedModel&) = delete;
  OpenedModel& operator=(const OpenedModel&) = delete;
  ~OpenedModel();

  const ModelConfig& config() const { return config_; }
  const config::ModelTraits& traits() const { return traits_; }
  const RunBatches& run() const { return run_; }

  // Checks the fields of the model's own section. Throws ConfigError.
  void check() const;

  // The config with what it leaves to the data filled in (outputs, vocabulary). Throws ConfigError
  // if both are given and do not agree.
  ModelConfig resolved(const ModelIo& io) const;

  // The config with which the model has the parameters of these names, which a checkpoint of an
  // older revision recorded by another rule. Nothing if no such config is known, or none is needed.
  std::optional<ModelConfig> with_recorded_parameters(const std::set<std::string>& names) const;

  // Builds the graph of one lane of `lane_batch` samples; a training graph is differentiated. The
  // config must be resolved. `tokens` shortens the sequences of a language model below its context;
  // 0: the whole context. Throws ConfigError.
  graph::Graph build(const ModelIo& io,
                     int64_t lane_batch,
                     const graph::GraphOptions& options,
                     int64_t tokens = 0) const;

  // The first node of a network by which the output for a sample depends on other samples of the
  // batch, on its position among them or on how many there are; empty: there is none. Batch norms
  // do not count.
  std::string mixing_node(const ModelIo& io, int64_t global_batch, int64_t lane_batch) const;

  // Samples of the smallest graph that build() can make.
  int64_t fewest_samples() const;

  // The only number of samples for which build() can make a graph; 0: any number, or several.
  int64_t only_batch(const ModelIo& io) const;

  // Why only FP32 computes the model exactly: "..., which only FP32 holds exactly"; empty: 16 bits
  // do too. For images of the usual size. Throws ConfigError if the model cannot be lowered.
  std::string reason_for_fp32() const;

  // Floating-point operations of one sample's forward and backward pass, as MFU counts them: 6 per
  // parameter that multiplies each token or sample and, for causal attention, 6 * layers * width *
  // context per token; for images three times the forward pass of convolutions and linear layers.
  double flops_per_sample(const ModelIo& io) const;

  // Inputs, classes and the size of images, read off the first and the last tensors of weights that
  // exist already, so that a model can be built without its data. If a network takes images of any
  // size, or a tensor is missing, a usual value is taken: a wrong one is found when shapes are
  // compared.
  ModelIo io_of_weights(const ExtentsOf& extents_of) const;

  // Frees memory that only building graphs needs. Later calls make it again.
  void release() const;

 private:
  const ModelConfig config_;
  const RunBatches run_;
  const std::unique_ptr<const Model> model_;
  config::ModelTraits traits_;
};

// Throws ConfigError if the model's file cannot be read, or is no network that can be trained.
std::shared_ptr<const OpenedModel> open_model(const ModelConfig& model, const RunBatches& run = {});

// The model with another config, opened; `opened` itself if the config is the same.
std::shared_ptr<const OpenedModel> reopen_model(const std::shared_ptr<const OpenedModel>& opened,
                                                const ModelConfig& config);

// The graph of a model that is used for nothing else: see OpenedModel::build().
graph::Graph build_model(const ModelConfig& model,
                         const ModelIo& io,
                         int64_t lane_batch,
                         const graph::GraphOptions& options,
                         int64_t tokens = 0);

// A config of every family, as it is by default.
std::vector<ModelConfig> all_models();

// The sections of the models for which `is_true` returns true, each with `before` in front:
// "resnet, vgg or lenet".
std::string sections_where(const std::function<bool(const config::ModelTraits&)>& is_true,
                           const std::string& before = "");

// The traits of the model that is recognised by a tensor that its checkpoint has. Nothing if there
// is no such model.
std::optional<config::ModelTraits> traits_by_tensors(
    const std::function<bool(const std::string& name)>& has_tensor);

// The errors that opening and checking the model would report, and all other reasons that it cannot
// be trained, as far as they can be found at once. Empty: there are none.
std::vector<std::string> problems_of_model(const ModelConfig& model);

}  // namespace lockstep::models
