#pragma once
// The file of execution.tune: the algorithm of cuBLASLt or cuDNN that each request of a training
// takes. It begins with the GPU and the libraries that it is for, and has a line for each request:
//
//   gpu: NVIDIA H100 80GB HBM3
//   multiprocessors: 132
//   cublaslt: 130100
//   cudnn: 91900
//   product m=4096 n=2304 k=768 transpose_b=1 in=bf16 out=bf16 epilogue=bias -> id=66 tile=20 ...
//   convolution pass=forward batch=64 height=56 ... -> eng6_k24=26
//
// "#" begins a comment. What a request does not name is 0 or 1, its usual value.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::cuda {

// In place of an algorithm: the library has none; separate kernels are faster than one that also
// applies an epilogue; the library's first, because it makes none again from its attributes.
inline constexpr const char *kNoAlgorithm = "none", *kSeparateKernels = "separate",
                            *kFirstAlgorithm = "first";

// A request as text, such as "product m=4096 n=2304 k=768".
class RequestText {
 public:
  explicit RequestText(std::string kind) : text_(std::move(kind)) {}
  // Adds a number, unless it is `usual`.
  RequestText& add(std::string_view name, int64_t value, int64_t usual = 0);
  RequestText& add(std::string_view name, std::string_view word);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class AlgorithmChoices {
 public:
  // What the choices are for: {"gpu", "NVIDIA H100 80GB HBM3"}, ... No name or value is empty.
  using Facts = std::vector<std::pair<std::string, std::string>>;
  struct Choice {
    std::string algorithm;  // or one of the words above
    std::string comment = {};
    int line = 0;  // in the file
  };

  // Without choices.
  explicit AlgorithmChoices(Facts facts) : facts_(std::move(facts)) {}
  // Those of a file. Throws ConfigError if a line is broken or the file has other facts.
  AlgorithmChoices(std::string path, std::string_view text, Facts facts);

  bool has(const std::string& request) const { return choices_.contains(request); }
  // Throws ConfigError if the file lacks the request.
  const Choice& at(const std::string& request) const;
  // Throws ConfigError: the library refuses the algorithm that the file has for the request.
  [[noreturn]] void refuse(const std::string& request, const std::string& why) const;
  void add(const std::string& request, Choice choice);
  size_t size() const { return choices_.size(); }

  // The file's text.
  std::string text() const;

 private:
  void read_line(std::string_view line, int number);

  std::string path_;
  Facts facts_;
  size_t facts_read_ = 0;
  std::map<std::string, Choice> choices_;
};

}  // namespace lockstep::cuda
