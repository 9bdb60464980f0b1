#pragma once
// The optimizers in double precision, as their papers and PyTorch write them, with the plain
// hyperparameters.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

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

// AdamReference with torch's amsgrad.
struct AmsgradReference {
  AdamReference adam;

  void step(int64_t t, double gradient, double& parameter, double& m, double& v, double& x) const {
    double adams = parameter;
    adam.step(t, gradient, adams, m, v);
    x = std::max(x, v);
    const double m_hat = m / (1 - std::pow(adam.beta1, t)),
                 x_hat = x / (1 - std::pow(adam.beta2, t));
    if (adam.decoupled) parameter *= 1 - adam.lr * adam.weight_decay;
    parameter -= adam.lr * m_hat / (std::sqrt(x_hat) + adam.epsilon);
  }
};

// torch.optim.RMSprop.
struct RmspropReference {
  double lr, alpha, epsilon, weight_decay, momentum, grad_scale;
  bool centred;

  void step(double gradient, double& parameter, double& v, double& buffer, double& average) const {
    const double g = gradient * grad_scale + weight_decay * parameter;
    v = alpha * v + (1 - alpha) * g * g;
    average += (1 - alpha) * (g - average);
    const double root = std::sqrt(centred ? v - average * average : v) + epsilon;
    buffer = momentum * buffer + g / root;
    parameter -= lr * buffer;
  }
};

// torch.optim.Adagrad.
struct AdagradReference {
  double lr, lr_decay, epsilon, weight_decay, grad_scale;

  void step(int64_t t, double gradient, double& parameter, double& sum) const {
    const double g = gradient * grad_scale + weight_decay * parameter;
    sum += g * g;
    parameter -= lr / (1 + static_cast<double>(t - 1) * lr_decay) * g / (std::sqrt(sum) + epsilon);
  }
};

// "Symbolic discovery of optimization algorithms", algorithm 2.
struct LionReference {
  double lr, beta1, beta2, weight_decay, grad_scale;

  void step(double gradient, double& parameter, double& m) const {
    const double g = gradient * grad_scale, c = beta1 * m + (1 - beta1) * g;
    const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
    parameter -= lr * (sign + weight_decay * parameter);
    m = beta2 * m + (1 - beta2) * g;
  }
};

// The fields of an optimizer's message, to make its updates from.
struct AdamFields {
  double beta1, beta2, epsilon, weight_decay;
};
struct LionFields {
  double beta1, beta2, weight_decay;
};
struct RmspropFields {
  double alpha, epsilon, weight_decay, momentum;
  bool centred;
};
struct AdagradFields {
  double lr_decay, epsilon, weight_decay;
};

inline double norm(const std::vector<double>& x) {
  double sum = 0;
  for (double value : x) sum += value * value;
  return std::sqrt(sum);
}

// "Large batch training of convolutional networks", algorithm 1, on one tensor. Not adapted: a
// bias, with a local rate of 1 and without decay.
struct LarsReference {
  double momentum, weight_decay, trust_coefficient, epsilon;

  void step(double lr,
            bool adapted,
            const std::vector<double>& gradient,
            std::vector<double>& parameter,
            std::vector<double>& moment) const {
    const double decay = adapted ? weight_decay : 0;
    const double w = norm(parameter), g = norm(gradient);
    const double local =
        adapted && w > 0 && g > 0 ? trust_coefficient * w / (g + weight_decay * w + epsilon) : 1;
    for (size_t i = 0; i < parameter.size(); ++i) {
      moment[i] = momentum * moment[i] + lr * local * (gradient[i] + decay * parameter[i]);
      parameter[i] -= moment[i];
    }
  }
};

// "Large batch optimization for deep learning: training BERT in 76 minutes", algorithm 2, with the
// identity for phi.
struct LambReference {
  double beta1, beta2, epsilon, weight_decay;

  void step(int64_t t,
            double lr,
            bool adapted,
            const std::vector<double>& gradient,
            std::vector<double>& parameter,
            std::vector<double>& m,
            std::vector<double>& v) const {
    std::vector<double> update(parameter.size());
    for (size_t i = 0; i < parameter.size(); ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * gradient[i];
      v[i] = beta2 * v[i] + (1 - beta2) * gradient[i] * gradient[i];
      const double m_hat = m[i] / (1 - std::pow(beta1, t)), v_hat = v[i] / (1 - std::pow(beta2, t));
      update[i] =
          m_hat / (std::sqrt(v_hat) + epsilon) + (adapted ? weight_decay : 0) * parameter[i];
    }
    const double w = norm(parameter), u = norm(update);
    const double trust = adapted && w > 0 && u > 0 ? w / u : 1;
    for (size_t i = 0; i < parameter.size(); ++i) parameter[i] -= lr * trust * update[i];
  }
};

}  // namespace lockstep::test
