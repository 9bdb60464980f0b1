#pragma once
// The networks of an opened file, each of which is bound once however many stages ask for it.

#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "models/onnx/bind/network_inputs.h"

namespace lockstep::onnx {

// What a network is bound to: see NetworkInputs::bind().
struct BoundForm {
  int64_t batch = 1;
  int64_t tokens = 0;
  Extents images = {};
  bool stream = false;

  auto operator<=>(const BoundForm&) const = default;
};

// Thread-safe.
class BoundNetworks {
 public:
  explicit BoundNetworks(const NetworkInputs& inputs) : inputs_(inputs) {}  // borrowed

  // The network of this form, which is bound if it is not yet. Throws ConfigError, also if values
  // that are computed before the start take more than `max_folded_bytes`.
  std::shared_ptr<const Network> get(const BoundForm& form,
                                     int64_t max_folded_bytes = BindOptions().max_folded_bytes);
  // Whether the network of this form is bound.
  bool has(const BoundForm& form) const;
  // The largest batch other than form.batch, but at most kMaxOtherBatch, for which the network is
  // bound in this form; none: there is no such batch.
  std::optional<int64_t> other_batch(const BoundForm& form) const;
  // Forgets all networks, whose constants may take much memory. A later get() binds again.
  void clear();

 private:
  static constexpr int64_t kMaxOtherBatch = 32;

  const NetworkInputs& inputs_;
  mutable std::mutex mutex_;
  std::map<BoundForm, std::shared_ptr<const Network>> networks_;
};

}  // namespace lockstep::onnx
