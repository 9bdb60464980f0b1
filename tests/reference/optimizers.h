#pragma once
// The optimizers in double precision, as their papers and PyTorch write them, with the plain
// hyperparameters.

#include <cmath>
#include <cstdint>

namespace lockstep::test {

struct SgdReference {
  double lr, momentum, weight_decay, grad_scale;
  bool nesterov;
  bool first = true;

  void step(double gradient, double& parameter, double& moment) {
    double d = gradient * grad_scale + weight_decay * parameter;
    if (momentum != 0) {
      moment = first ? d : momentum * moment + d;
      d = nesterov ? d + momentum * moment : moment;
    }
    first = false;
    parameter -= lr * d;
  }
};

struct AdamReference {
  double lr, beta1, beta2, epsilon, weight_decay, grad_scale;
  bool decoupled;

  void step(int64_t t, double gradient, double& parameter, double& m, double& v) const {
    double g = gradient * grad_scale;
    if (decoupled) {
      parameter *= 1 - lr * weight_decay;
    } else {
      g += weight_decay * parameter;
    }
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double m_hat = m / (1 - std::pow(beta1, t)), v_hat = v / (1 - std::pow(beta2, t));
    parameter -= lr * m_hat / (std::sqrt(v_hat) + epsilon);
  }
};

}  // namespace lockstep::test
