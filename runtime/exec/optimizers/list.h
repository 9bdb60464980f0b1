#pragma once
// All elementwise updates. A new optimizer is a file next to this one, a line in the list and a
// message of the config. Its struct holds the constants of one update, as floats, and has
//   moment_names(config)        the arrays that it keeps per parameter, as PyTorch names them
//   make(config, UpdateStep)    the constants of the next update
//   operator()                  the update of one element, with as many moments as have names: at
//                               most kMaxMoments
// Fused multiply-adds are explicit, so that every instruction set and the GPU round alike.

#include <variant>

#include "runtime/exec/optimizers/adafactor.h"
#include "runtime/exec/optimizers/adagrad.h"
#include "runtime/exec/optimizers/adam.h"
#include "runtime/exec/optimizers/adamw.h"
#include "runtime/exec/optimizers/lamb_direction.h"
#include "runtime/exec/optimizers/lion.h"
#include "runtime/exec/optimizers/muon.h"
#include "runtime/exec/optimizers/other_updates.h"
#include "runtime/exec/optimizers/rmsprop.h"
#include "runtime/exec/optimizers/sgd.h"

// X(message of the config, update)
#define LOCKSTEP_OPTIMIZERS(X)          \
  X(SgdConfig, exec::SgdUpdate)         \
  X(AdamConfig, exec::AdamUpdate)       \
  X(AdamwConfig, exec::AdamwUpdate)     \
  X(LionConfig, exec::LionUpdate)       \
  X(RmspropConfig, exec::RmspropUpdate) \
  X(AdagradConfig, exec::AdagradUpdate)

namespace lockstep::exec {

#define LOCKSTEP_UPDATE(Config, Update) Update,
using OptimizerUpdate = std::variant<LOCKSTEP_OPTIMIZERS(LOCKSTEP_UPDATE) AdafactorDirection,
                                     LambDirection,
                                     MuonMomentum,
                                     MuonStep,
                                     MovingAverage,
                                     Exchange>;
#undef LOCKSTEP_UPDATE

// Whether an update can be called with so many moments, and with such a gradient and parameter.
template <typename Update, int kMoments, typename Gradient = float&, typename Parameter = float&>
inline constexpr bool kTakesMoments = [] {
  static_assert(kMoments >= 0 && kMoments <= kMaxMoments && kMaxMoments == 3);
  if constexpr (kMoments == 0) {
    return requires(const Update& u, Gradient g, Parameter p) { u(g, p); };
  } else if constexpr (kMoments == 1) {
    return requires(const Update& u, Gradient g, Parameter p, float& x) { u(g, p, x); };
  } else if constexpr (kMoments == 2) {
    return requires(const Update& u, Gradient g, Parameter p, float& x) { u(g, p, x, x); };
  } else {
    return requires(const Update& u, Gradient g, Parameter p, float& x) { u(g, p, x, x, x); };
  }
}();

// The fewest moments with which an update can be called.
template <typename Update, int kMoments = 0>
constexpr int fewest_moments() {
  if constexpr (kTakesMoments<Update, kMoments>) {
    return kMoments;
  } else {
    return fewest_moments<Update, kMoments + 1>();
  }
}

// Whether an update writes the array passed as gradients, and whether it writes the parameters.
template <typename Update>
inline constexpr bool kWritesGradient =
    !kTakesMoments<Update, fewest_moments<Update>(), const float&>;
template <typename Update>
inline constexpr bool kWritesParameter =
    !kTakesMoments<Update, fewest_moments<Update>(), float&, const float&>;

}  // namespace lockstep::exec
