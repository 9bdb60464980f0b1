#pragma once
// Finds the network that a published row trained.

#include <optional>

#include "launcher/published/published_rows.h"

namespace lockstep::published {

struct RowSettings {
  double batch = 0;   // of a micro-batch and device; 0: not stated
  double tokens = 0;  // or the side of an image
  double fill = 1;    // share of tokens that is no padding, if padding is left out
  bool half = false;  // computes in 16 bits
  double memory_gib = 0;
};

// The work of a micro-batch. If the batch is not stated it is the largest usual one whose
// activations fit. `why`: what is unknown.
std::optional<NetworkWork> network_of(const PublishedRow& row,
                                      const RowSettings& settings,
                                      std::string* why);

// The share of tokens that is no padding, if the software leaves padding out; otherwise 1.
double fill_of(const PublishedRow& row, const TrainerConstants& constants);

}  // namespace lockstep::published
