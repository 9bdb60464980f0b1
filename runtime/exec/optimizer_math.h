#pragma once
// The arithmetic of the optimizers on one element, shared by all backends, and what a backend is
// given to update slices. Fused multiply-adds are written out, so that every instruction set and
// the GPU round alike. The formulas are PyTorch's.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <variant>

#include "runtime/base/dtype.h"
#include "runtime/base/host_device.h"

namespace lockstep {

// Stochastic gradient descent; momentum without dampening.
struct SgdConstants {
  float lr;
  float momentum;      // 0: no moment is kept
  float weight_decay;  // times the parameter is added to the gradient
  float grad_scale;    // multiplies every gradient first
  bool nesterov;
};

// Adam (weight decay added to the gradient) or, decoupled, AdamW (the parameter shrinks by
// decay_factor). Filled by adam_constants().
struct AdamConstants {
  float step_size;  // lr / (1 - beta1^step)
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float inverse_root_correction2;  // 1 / sqrt(1 - beta2^step)
  float epsilon;
  float weight_decay;  // added to the gradient; 0 when decoupled
  float decay_factor;  // 1 - lr * weight_decay when decoupled; 1 otherwise
  float grad_scale;    // multiplies every gradient first
};

// `step` counts from 1. The corrections are computed in double precision: near step 1 of beta2 =
// 0.999 a float would lose four digits.
inline AdamConstants adam_constants(double lr,
                                    double beta1,
                                    double beta2,
                                    double epsilon,
                                    double weight_decay,
                                    bool decoupled,
                                    double grad_scale,
                                    int64_t step) {
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(beta2, static_cast<double>(step));
  return {.step_size = static_cast<float>(lr / correction1),
          .beta1 = static_cast<float>(beta1),
          .one_minus_beta1 = static_cast<float>(1 - beta1),
          .beta2 = static_cast<float>(beta2),
          .one_minus_beta2 = static_cast<float>(1 - beta2),
          .inverse_root_correction2 = static_cast<float>(1 / std::sqrt(correction2)),
          .epsilon = static_cast<float>(epsilon),
          .weight_decay = decoupled ? 0.0f : static_cast<float>(weight_decay),
          .decay_factor = decoupled ? static_cast<float>(1 - lr * weight_decay) : 1.0f,
          .grad_scale = static_cast<float>(grad_scale)};
}

// The first half of LAMB: the direction of each element's descent. The second half is SGD along it.
struct LambConstants {
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float inverse_correction1;       // 1 / (1 - beta1^step)
  float inverse_root_correction2;  // 1 / sqrt(1 - beta2^step)
  float epsilon;
  float weight_decay;
  float grad_scale;  // multiplies every gradient first
};

inline LambConstants lamb_constants(double beta1,
                                    double beta2,
                                    double epsilon,
                                    double weight_decay,
                                    double grad_scale,
                                    int64_t step) {
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(beta2, static_cast<double>(step));
  return {.beta1 = static_cast<float>(beta1),
          .one_minus_beta1 = static_cast<float>(1 - beta1),
          .beta2 = static_cast<float>(beta2),
          .one_minus_beta2 = static_cast<float>(1 - beta2),
          .inverse_correction1 = static_cast<float>(1 / correction1),
          .inverse_root_correction2 = static_cast<float>(1 / std::sqrt(correction2)),
          .epsilon = static_cast<float>(epsilon),
          .weight_decay = static_cast<float>(weight_decay),
          .grad_scale = static_cast<float>(grad_scale)};
}

// A running statistic: what comes as its gradient is the sum over the lanes of what each has seen.
// Or the average of the weights, whose `parameters` it is, from the weights as gradients. Not an
// optimizer; neither learning rate, clipping, loss scale nor weight decay touches it.
struct MovingAverageConstants {
  float keep;    // 1 - momentum
  float weight;  // momentum / lanes
};

// Parameters and what stands in the gradients' place change places, bit for bit. Not an optimizer:
// so are weights and their average exchanged.
struct ExchangeConstants {};

using OptimizerConstants = std::
    variant<SgdConstants, AdamConstants, LambConstants, MovingAverageConstants, ExchangeConstants>;

// A slice of the flat buffers that is updated. All pointers are to `elements` floats and borrowed.
struct OptimizerSlice {
  size_t group = 0;  // the place, among the constants of the update, of those that say how
  int64_t elements = 0;
  float* parameters = nullptr;     // fp32: the masters where the ops read another type
  float* gradients = nullptr;      // written by LAMB, whose directions they become, and exchanged
  float* first_moment = nullptr;   // SGD with momentum, Adam, LAMB; else null
  float* second_moment = nullptr;  // Adam, LAMB; else null
  void* stored = nullptr;  // the new parameters in the type that the ops read; null where fp32
  DType stored_dtype = DType::kF32;
};

// p <-> other.
LOCKSTEP_HD void exchange_update(float& other, float& parameter) {
  const float was = parameter;
  parameter = other;
  other = was;
}

// p <- keep * p + weight * sum.
LOCKSTEP_HD void moving_average_update(const MovingAverageConstants& c,
                                       float sum,
                                       float& parameter) {
  parameter = std::fma(c.weight, sum, c.keep * parameter);
}

// p <- p - lr * g, without momentum.
LOCKSTEP_HD void sgd_update(const SgdConstants& c, float gradient, float& parameter) {
  const float g = std::fma(c.weight_decay, parameter, gradient * c.grad_scale);
  parameter = std::fma(-c.lr, g, parameter);
}

// m <- momentum * m + g; p <- p - lr * m, or with Nesterov p - lr * (g + momentum * m).
LOCKSTEP_HD void sgd_momentum_update(const SgdConstants& c,
                                     float gradient,
                                     float& parameter,
                                     float& moment) {
  const float g = std::fma(c.weight_decay, parameter, gradient * c.grad_scale);
  moment = std::fma(c.momentum, moment, g);
  const float direction = c.nesterov ? std::fma(c.momentum, moment, g) : moment;
  parameter = std::fma(-c.lr, direction, parameter);
}

// m <- beta1 m + (1 - beta1) g; v <- beta2 v + (1 - beta2) g^2; p <- decay_factor p - step_size m /
// (sqrt(v / correction2) + epsilon).
LOCKSTEP_HD void adam_update(const AdamConstants& c,
                             float gradient,
                             float& parameter,
                             float& first_moment,
                             float& second_moment) {
  const float g = std::fma(c.weight_decay, parameter, gradient * c.grad_scale);
  first_moment = std::fma(c.beta1, first_moment, c.one_minus_beta1 * g);
  second_moment = std::fma(c.beta2, second_moment, c.one_minus_beta2 * g * g);
  const float denominator =
      std::fma(std::sqrt(second_moment), c.inverse_root_correction2, c.epsilon);
  parameter = std::fma(-c.step_size, first_moment / denominator, parameter * c.decay_factor);
}

// m <- beta1 m + (1 - beta1) g; v <- beta2 v + (1 - beta2) g^2; g <- (m / correction1) / (sqrt(v /
// correction2) + epsilon) + weight_decay p.
LOCKSTEP_HD void lamb_direction(const LambConstants& c,
                                float parameter,
                                float& gradient,
                                float& first_moment,
                                float& second_moment) {
  const float g = gradient * c.grad_scale;
  first_moment = std::fma(c.beta1, first_moment, c.one_minus_beta1 * g);
  second_moment = std::fma(c.beta2, second_moment, c.one_minus_beta2 * g * g);
  const float denominator =
      std::fma(std::sqrt(second_moment), c.inverse_root_correction2, c.epsilon);
  gradient =
      std::fma(c.weight_decay, parameter, first_moment * c.inverse_correction1 / denominator);
}

}  // namespace lockstep
