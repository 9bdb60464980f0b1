#include "models/onnx/opened_networks.h"

#include <algorithm>

#include "models/onnx/bind/data_inputs.h"
#include "models/onnx/bind/fixed_batch.h"
#include "models/onnx/bind/objective.h"
#include "models/onnx/freed_batch.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {
namespace {

// Max elements (N, T, T) of masks that are examined in the network of the run's own batch.
constexpr int64_t kMaxElementsOfMasks = int64_t{1} << 22;

}  // namespace

void OpenedNetworks::release() const {
  const std::lock_guard lock(mutex_);
  usual_.reset();
  if (networks_) networks_->clear();
}

const OpenedFile& OpenedNetworks::opened() const {
  const std::lock_guard lock(mutex_);
  if (opened_ == nullptr) opened_ = open_with_free_batch(config_);
  return *opened_;
}

const NetworkInputs& OpenedNetworks::inputs() const {
  const OpenedFile& file = opened();
  const std::lock_guard lock(mutex_);
  if (!inputs_) inputs_.emplace(file, config_);
  return *inputs_;
}

BoundNetworks& OpenedNetworks::networks() const {
  const NetworkInputs& of = inputs();
  const std::lock_guard lock(mutex_);
  if (!networks_) networks_.emplace(of);
  return *networks_;
}

UsualNetwork OpenedNetworks::usual() const {
  BoundNetworks& bound = networks();
  const std::lock_guard lock(mutex_);
  if (!usual_) usual_ = usual_network(*inputs_, *opened_, config_, bound);
  return *usual_;
}

BoundForm OpenedNetworks::form_of(int64_t batch, const models::ModelIo& io) const {
  return {batch, inputs().context(), sample_of(io), is_stream(config_, graph::Purpose::kInference)};
}

BoundForm OpenedNetworks::any_form(const models::ModelIo& io) const {
  BoundForm form = form_of(usual().form.batch, io);
  if (networks().has(form)) return form;
  if (const auto other = networks().other_batch(form))
    form.batch = *other;
  else if (lane_ > 0)
    form.batch = lane_;
  return form;
}

std::shared_ptr<const Network> OpenedNetworks::network_of(const BoundForm& form,
                                                          const models::ModelIo& io) const {
  try {
    return networks().get(form);
  } catch (const ConfigError& error) {
    const int64_t only = fixed_batch(opened().file) > 0 ? 0 : only_batch(io);
    if (only == 0 || only == form.batch) throw;
    throw ConfigError("{} ({})", refusal_of_batch(opened().file, form.batch, only), error.what());
  }
}

bool OpenedNetworks::has_open_images() const {
  if (inputs().kind() != config::ModelInput::kImages) return false;
  return std::ranges::count(with_open_ones(inputs(), opened(), config_, {-1, -1, -1}), -1) > 0;
}

Extents OpenedNetworks::sample_of(const models::ModelIo& io) const {
  if (inputs().kind() != config::ModelInput::kImages) return {};
  const Extents images = {io.channels, io.height, io.width};
  const Extents taken = with_open_ones(inputs(), opened(), config_, images);
  if (taken != images)
    throw ConfigError(
        "model.onnx.file: {} takes images of {} (channels, height, width); the data has {}{}",
        config_.file,
        to_string(taken),
        to_string(images),
        taken[0] == images[0] ? remedy_of_size(taken) : "");
  return images;
}

std::string OpenedNetworks::remedy_of_size(const Extents& taken) const {
  return fmt::format(
      "; {}export the network with open heights and widths: {}",
      taken[1] == taken[2] ? fmt::format("set data.image.size to {}, or ", taken[1]) : "",
      export_line(opened().file, {2, 3}));
}

std::shared_ptr<const Network> OpenedNetworks::probe_of(const BoundForm& form) const {
  BoundForm few = form;
  few.batch = std::min(form.batch, kSamplesOfMasks);
  const bool small = form.batch * form.tokens * form.tokens <= kMaxElementsOfMasks;
  return networks().get(small && !networks().has(few) ? form : few);
}

int64_t OpenedNetworks::only_batch(const models::ModelIo& io) const {
  if (const int64_t fixed = fixed_batch(opened().file); fixed > 0) return fixed;
  const int64_t fits = usual().form.batch;
  if (networks().other_batch(form_of(fits, io))) return 0;
  for (const int64_t other : {2 * fits, 3 * fits}) {
    try {
      networks().get(form_of(other, io));
      return 0;
    } catch (const ConfigError&) {  // the nodes do not accept so many
    }
  }
  return fits;
}

}  // namespace lockstep::onnx
