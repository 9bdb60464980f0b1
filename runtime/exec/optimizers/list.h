#pragma once
// All elementwise updates. A new optimizer is a file next to this one, a line in the list and a
// message of the config. Its struct holds the constants of one update, as floats, and has
//   moment_names(config)        the arrays that it keeps per parameter, as PyTorch names them
//   make(config, UpdateStep)    the constants of the next update
//   operator()                  the update of one element, with zero, one or two moments
// Fused multiply-adds are explicit, so that every instruction set and the GPU round alike.

#include <variant>

#include "runtime/exec/optimizers/adam.h"
#include "runtime/exec/optimizers/adamw.h"
#include "runtime/exec/optimizers/lamb_direction.h"
#include "runtime/exec/optimizers/lion.h"
#include "runtime/exec/optimizers/muon.h"
#include "runtime/exec/optimizers/other_updates.h"
#include "runtime/exec/optimizers/sgd.h"

// X(message of the config, update)
#define LOCKSTEP_OPTIMIZERS(X)      \
  X(SgdConfig, exec::SgdUpdate)     \
  X(AdamConfig, exec::AdamUpdate)   \
  X(AdamwConfig, exec::AdamwUpdate) \
  X(LionConfig, exec::LionUpdate)

namespace lockstep::exec {

#define LOCKSTEP_UPDATE(Config, Update) Update,
using OptimizerUpdate = std::variant<LOCKSTEP_OPTIMIZERS(LOCKSTEP_UPDATE) LambDirection,
                                     MuonMomentum,
                                     MuonStep,
                                     MovingAverage,
                                     Exchange>;
#undef LOCKSTEP_UPDATE

// How many moments an update takes.
template <typename Update>
inline constexpr bool kTakesTwoMoments = requires(const Update& u, float& x) {
  u(x, x, x, x);
};
template <typename Update>
inline constexpr bool kTakesOneMoment = requires(const Update& u, float& x) {
  u(x, x, x);
};
template <typename Update>
inline constexpr bool kTakesNoMoment = requires(const Update& u, float& x) {
  u(x, x);
};

// Whether an update writes the array passed as gradients, and whether it writes the parameters.
template <typename Update>
inline constexpr bool kWritesGradient = !requires(const Update& u, const float& g, float& x) {
  u(g, x, x, x);
}
&&!requires(const Update& u, const float& g, float& x) { u(g, x, x); }
&&!requires(const Update& u, const float& g, float& x) { u(g, x); };
template <typename Update>
inline constexpr bool kWritesParameter = !requires(const Update& u, const float& p, float& x) {
  u(x, p, x, x);
}
&&!requires(const Update& u, const float& p, float& x) { u(x, p, x); }
&&!requires(const Update& u, const float& p, float& x) { u(x, p); };

}  // namespace lockstep::exec
