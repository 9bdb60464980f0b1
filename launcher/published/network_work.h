#pragma once
// The work of a network, counted from its structure: what training must compute and move for one
// micro-batch, whatever program trains it. Extents are doubles, because they may be means, such as
// the tokens of a batch without padding.

#include <array>
#include <string>
#include <vector>

namespace lockstep::published {

// Products (m, k) x (k, n), or a convolution that is computed as such. Training takes two more
// products of these extents, for the gradients of the input and of the weights.
struct Product {
  double m = 0, n = 0, k = 0;
  double count = 1;     // equal products that are computed at once
  double elements = 0;  // of operands and results of all of them
  double taps = 1;      // of a convolution's filter; k has them all
  bool convolution = false;
  bool winograd = false;  // 3x3 at stride 1: FP32 needs fewer multiplications
  bool trained = true;    // otherwise forward only
};

// An op that is bound by memory: how often it passes over `elements`, reads and writes together.
// The passes depend on fusion: each op alone, ops fused with each other, ops fused into products.
struct Walk {
  double elements = 0;
  std::array<double, 3> forward{}, backward{};
  double forward_kernels = 1, backward_kernels = 1;  // if each op is alone
  bool batch_norm = false;                           // there are kernels that read its input once
};

struct Attention {
  double heads = 0;  // of all samples
  double queries = 0, keys = 0, size = 0;
  bool causal = false;
};

struct Depthwise {
  double input = 0, output = 0;  // elements
  double taps = 0;               // of the filter
};

struct NetworkWork {
  std::vector<Product> products;
  std::vector<Walk> walks;
  std::vector<Attention> attentions;
  std::vector<Depthwise> depthwise;
  double parameters = 0;
  double late_parameters = 0;   // whose gradients are complete when backward ends: embeddings
  double samples = 0;           // of the micro-batch
  double tokens_of_sample = 1;  // 1: rates count samples
  // The ops before the head. Only these are recomputed if activations are not kept. 0: all.
  size_t body_products = 0, body_walks = 0;

  double multiply_adds() const;  // forward
  double activations() const;    // elements that walks read, each counted once
};

// The passes of a walk forward and backward at one degree of fusion.
struct Passes {
  double forward = 0, backward = 0;
};

// Adds ops to a network's work. Ops of a part that is not trained count forward only, and its
// parameters do not count.
class WorkCounter {
 public:
  explicit WorkCounter(NetworkWork& work) : work_(work) {}

  void set_trained(bool trained) { trained_ = trained; }

  // A layer of `rows` x `inputs` to `outputs`. `shared`: its weights are counted elsewhere.
  void linear(double rows, double outputs, double inputs, bool shared = false);
  // Any product. `elements` 0: each operand once.
  void product(Product product, double parameters);
  void walk(
      double elements, Passes alone, Passes fused, Passes in_products, Passes kernels = {1, 1});
  void walk(double elements, Passes alone, Passes fused) { walk(elements, alone, fused, fused); }
  void walk(double elements, Passes passes) { walk(elements, passes, passes, passes); }
  void batch_norm(double elements);
  void attention(const Attention& attention) { work_.attentions.push_back(attention); }
  void depthwise(const Depthwise& convolution, double parameters);
  void embedding(double count) {
    work_.late_parameters += count;
    parameters(count);
  }
  void parameters(double count) { work_.parameters += trained_ ? count : 0; }
  // What follows is the head.
  void end_body();

 private:
  NetworkWork& work_;
  bool trained_ = true;
};

}  // namespace lockstep::published
