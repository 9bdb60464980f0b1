#pragma once
// What a family of models implements for its config; all other code uses OpenedModel (registry.h).
// ADDING_A_FAMILY.md explains how to add a family.

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/registry.h"
#include "runtime/config/model_traits.h"
#include "runtime/graph/builder.h"

namespace lockstep::models {

class Model {
 public:
  virtual ~Model() = default;
  // Called before all others, with the batches of the run that follows.
  virtual void expect(const RunBatches& /*run*/) const {}
  // Throws ConfigError if fields of the config do not go together.
  virtual void check() const {}
  // All reasons that the model cannot be trained, as far as they can be found at once: that of
  // check(), and more.
  virtual std::vector<std::string> problems() const;
  virtual config::ModelTraits traits() const = 0;
  // The functions of OpenedModel with these names; resolve() is resolved() there.
  virtual ModelConfig resolve(const ModelIo& io) const = 0;
  virtual ModelIo io_of_weights(const ExtentsOf& extents_of) const = 0;
  virtual std::optional<ModelConfig> with_recorded_parameters(
      const std::set<std::string>& /*names*/) const {
    return std::nullopt;
  }
  // For a resolved config. `tokens`: length of the sequences; 0: the whole context.
  virtual graph::Graph build(const ModelIo& io,
                             int64_t lane_batch,
                             int64_t tokens,
                             const graph::GraphOptions& options) const = 0;
  // See OpenedModel. Built-in families have no such node.
  virtual std::string mixing_node(const ModelIo& /*io*/,
                                  int64_t /*global_batch*/,
                                  int64_t /*lane_batch*/) const {
    return "";
  }
  // Samples of the smallest graph: above 1 for networks that combine samples or have a fixed batch.
  virtual int64_t fewest_samples() const { return 1; }
  // See OpenedModel. Built-in families compute in any type.
  virtual std::string reason_for_fp32() const { return ""; }
  // See OpenedModel. Built-in families take any number.
  virtual int64_t only_batch(const ModelIo& /*io*/) const { return 0; }
  // By default three times the products of the forward pass: the gradients of weights and of inputs
  // take as much again.
  virtual double flops_per_sample(const ModelIo& io) const;
  // Frees memory that later calls can do without.
  virtual void release() const {}
};

// Every family specialises this for its config, in its own file; one that does not is an error of
// the linker.
template <typename Config>
std::unique_ptr<const Model> make_model(const Config& config);

// OpenedModel::resolved() of a config.
ModelConfig resolve_model(const ModelConfig& model, const ModelIo& io);

// Extent `dimension` of the tensor of this name, or `otherwise` if there is none.
int64_t extent(const ExtentsOf& extents_of,
               const std::string& name,
               size_t dimension,
               int64_t otherwise);

}  // namespace lockstep::models
