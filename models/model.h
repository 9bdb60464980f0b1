#pragma once
// What a family of models says of one of its configs. README.md tells how to add a family.

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/registry.h"
#include "runtime/config/model_traits.h"
#include "runtime/graph/builder.h"

namespace lockstep {

class Model {
 public:
  virtual ~Model() = default;
  // Throws ConfigError where fields of the config do not go together.
  virtual void check() const {}
  // Every reason that it cannot be trained, as far as they can be found at once: that of check(), and more.
  virtual std::vector<std::string> problems() const;
  virtual ModelTraits traits() const = 0;
  // See registry.h of these.
  virtual ModelConfig resolve(const ModelIo& io) const = 0;
  virtual ModelIo io_of_weights(const ExtentsOf& extents_of) const = 0;
  // See registry.h.
  virtual std::optional<ModelConfig> with_recorded_parameters(
      const std::set<std::string>& /*names*/) const {
    return std::nullopt;
  }
  // Of a resolved config. `tokens`: length of the sequences, 0: the whole context; for models that
  // take tokens.
  virtual Graph build(const ModelIo& io,
                      int64_t lane_batch,
                      int64_t tokens,
                      const GraphOptions& options) const = 0;
  // See registry.h. Built-in families have no such node.
  virtual std::string mixing_node(const ModelIo& /*io*/,
                                  int64_t /*global_batch*/,
                                  int64_t /*lane_batch*/) const {
    return "";
  }
  // Samples of the smallest graph: above 1 for networks that put samples together or have a fixed batch.
  virtual int64_t fewest_samples() const { return 1; }
  // By default three times the products of the forward pass: the gradients of weights and of inputs
  // take as much again.
  virtual double flops_per_sample(const ModelIo& io) const;
};

// Every family specialises this for its config, in its own file; one that does not is an error of
// the linker.
template <typename Config>
std::unique_ptr<const Model> make_model(const Config& config);

// Model::check of a config.
void check_own_fields(const ModelConfig& model);

// Extent `dimension` of the tensor of this name, or `otherwise` where there is none.
int64_t extent(const ExtentsOf& extents_of,
               const std::string& name,
               size_t dimension,
               int64_t otherwise);

}  // namespace lockstep
