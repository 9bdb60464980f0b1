#pragma once
// For tests that need one property of a model: each function opens the model for it.

#include "models/registry.h"

namespace lockstep::testing {

inline config::ModelTraits traits_of(const ModelConfig& model) {
  return models::open_model(model)->traits();
}

inline ModelConfig resolved(const ModelConfig& model, const models::ModelIo& io) {
  return models::open_model(model)->resolved(io);
}

inline double flops_per_sample(const ModelConfig& model, const models::ModelIo& io) {
  return models::open_model(model)->flops_per_sample(io);
}

}  // namespace lockstep::testing
