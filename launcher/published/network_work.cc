#include "launcher/published/network_work.h"

namespace lockstep::published {

double NetworkWork::multiply_adds() const {
  double sum = 0;
  for (const Product& product : products) sum += product.m * product.n * product.k * product.count;
  for (const Depthwise& convolution : depthwise) sum += convolution.output * convolution.taps;
  return sum;
}

double NetworkWork::activations() const {
  double sum = 0;
  for (const Walk& walk : walks) sum += walk.elements;
  return sum;
}

void WorkCounter::linear(double rows, double outputs, double inputs, bool shared) {
  product({.m = rows, .n = outputs, .k = inputs}, shared ? 0 : outputs * inputs);
}

void WorkCounter::product(Product product, double parameters) {
  if (product.elements == 0)
    product.elements =
        product.count * (product.m * product.k + product.n * product.k + product.m * product.n);
  product.trained = trained_;
  work_.products.push_back(product);
  this->parameters(parameters);
}

void WorkCounter::walk(
    double elements, Passes alone, Passes fused, Passes in_products, Passes kernels) {
  Walk walk;
  walk.elements = elements;
  walk.forward = {alone.forward, fused.forward, in_products.forward};
  walk.forward_kernels = kernels.forward;
  if (trained_) walk.backward = {alone.backward, fused.backward, in_products.backward};
  walk.backward_kernels = trained_ ? kernels.backward : 0;
  work_.walks.push_back(walk);
}

void WorkCounter::batch_norm(double elements) {
  walk(elements, {3, 5}, {3, 5}, {2, 4}, {2, 2});
  work_.walks.back().batch_norm = true;
}

void WorkCounter::depthwise(const Depthwise& convolution, double parameters) {
  work_.depthwise.push_back(convolution);
  this->parameters(parameters);
}

void WorkCounter::end_body() {
  work_.body_products = work_.products.size();
  work_.body_walks = work_.walks.size();
}

}  // namespace lockstep::published
