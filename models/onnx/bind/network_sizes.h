#pragma once
// The sizes of a bound network's inputs and outputs: classes, vocabulary, images and so on.

#include <vector>

#include "models/onnx/bind/network_inputs.h"
#include "models/onnx/bind/targets.h"
#include "models/registry.h"

namespace lockstep::onnx {

class NetworkSizes {
 public:
  // Borrows all of its arguments.
  NetworkSizes(const OpenedFile& opened,
               const OnnxConfig& config,
               const NetworkInputs& inputs,
               const Network& network)
      : opened_(opened),
        config_(config),
        scored_(scored(config)),
        inputs_(inputs),
        network_(network) {}

  // Throws ConfigError if a table has fewer rows than there are classes, tokens or positions, whose
  // ids index it.
  void require_tables() const;

  // The values of the outputs that the config names, in the order of outputs_of().
  std::vector<int> output_numbers() const;
  // Classes, or values of a sample, in the first of these outputs; or in the first prediction of a
  // network that computes its loss, 0 if it has none.
  int64_t outputs() const;
  // Elements of a sample of all inputs together.
  int64_t features() const;
  // Classes of a denoiser; 0: it has none.
  int64_t classes() const;
  // Token ids are below this number; 0: it depends on the data.
  int64_t vocabulary() const;
  // Kinds of segments of a text; 2 for a network without an input of segments, which takes pairs of
  // texts too.
  int64_t segments() const;
  // The extents of a sample's classes of pixels or other positions; empty: no such classes.
  Extents class_extents() const;
  // Whether batch norms use the statistics of a lane in training.
  bool normalises_lanes() const;
  // For a network with loss CTC.
  config::TranscriptTraits transcript() const;
  // The sizes of data for this network.
  models::ModelIo io() const;

 private:
  void require_classes() const;
  void require_vocabulary() const;
  void require_positions() const;
  // Rows of the smallest table that inputs with this meaning index; 0: there is none.
  int64_t fewest_rows_of(Meaning meaning) const;

  const OpenedFile& opened_;
  const OnnxConfig& config_;
  const OnnxConfig scored_;  // see targets.h
  const NetworkInputs& inputs_;
  const Network& network_;
};

}  // namespace lockstep::onnx
