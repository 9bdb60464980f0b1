#pragma once
// The file of a model, opened when it is first needed, and its networks, each bound once.

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "models/model.h"
#include "models/onnx/bind/bound_networks.h"
#include "models/onnx/bind/network_sizes.h"
#include "models/onnx/bind/usual_network.h"

namespace lockstep::onnx {

// Thread-safe. Borrows the config. All functions throw ConfigError for a file that does not fit it.
class OpenedNetworks {
 public:
  explicit OpenedNetworks(const OnnxConfig& config) : config_(config) {}

  // The samples of the run's lanes, 0 if there is no run. Called before all others.
  void expect_lanes(int64_t samples) const { lane_ = samples; }
  // Frees all networks, but not the file.
  void release() const;

  const OpenedFile& opened() const;
  const NetworkInputs& inputs() const;
  BoundNetworks& networks() const;
  UsualNetwork usual() const;

  NetworkSizes sizes_of(const Network& network) const {
    return {opened(), config_, inputs(), network};
  }
  // The extents of images (C, H, W), which are those of the data; empty for other inputs.
  Extents sample_of(const models::ModelIo& io) const;
  // Whether the size of images is open, so that the data may have others than the usual ones.
  bool has_open_images() const;

  BoundForm form_of(int64_t batch, const models::ModelIo& io) const;
  // For samples like those of `io`, with a batch that the network takes: one that is bound, or that
  // of the run's lanes.
  BoundForm any_form(const models::ModelIo& io) const;
  // The network of this form. If the nodes accept one batch alone, the error names it.
  std::shared_ptr<const Network> network_of(const BoundForm& form, const models::ModelIo& io) const;
  // The network whose masks of tokens are examined for a network of this form: that of as few
  // samples as can be told apart, if it is bound, or the network itself, if its masks are small.
  std::shared_ptr<const Network> probe_of(const BoundForm& form) const;
  // As models::Model::only_batch().
  int64_t only_batch(const models::ModelIo& io) const;

 private:
  std::string remedy_of_size(const Extents& taken) const;

  const OnnxConfig& config_;
  mutable int64_t lane_ = 0;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const OpenedFile> opened_;
  mutable std::optional<NetworkInputs> inputs_;
  mutable std::optional<BoundNetworks> networks_;
  mutable std::optional<UsualNetwork> usual_;
};

}  // namespace lockstep::onnx
