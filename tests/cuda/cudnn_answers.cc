// Has cuDNN build a plan for every attention and every convolution of some networks, for a GPU that
// need not be here, and prints a line for each, in columns that tabs separate. tests/gpu/cudnn.py
// makes the table of tests/gpu/cudnn.md from it.
//
//   cudnn_answers GPU PRECISION CONFIG...      GPU: "H100", "RTX 4090", ... of described_gpus.h
//
// PRECISION is BF16, FP16, TF32 or FP32. CONFIG is the file of a run, planned with the lanes that
// it has, or `selftest`.
// Every line of the output begins with what it is:
//
//   version  cuDNN's
//   kept     network, precision, attention that the plan keeps from cuDNN
//   plan     network, precision, pass, extents, bytes of workspace that are planned, bytes that
//            cuDNN asks for, engine, bytes of its first choice if any workspace were there, and
//            its engine
//   refused  network, precision, pass, extents, bytes planned, what runs instead, cuDNN's reason
//   error    network, precision, why it has no graph
#include <fmt/core.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

#include "models/small_models.h"
#include "runtime/cuda/planned_ops.h"
#include "runtime/run/lanes.h"
#include "runtime/run/prepared_run.h"
#include "runtime/run/read_config.h"
#include "tests/cuda/cudnn_requests.h"
#include "tests/cuda/described_gpus.h"

namespace lockstep::test {
namespace {

struct Precision {
  const char* name;
  DType compute;
  bool tf32;
};
constexpr Precision kPrecisions[] = {{"BF16", DType::kBF16, false},
                                     {"FP16", DType::kF16, false},
                                     {"TF32", DType::kF32, true},
                                     {"FP32", DType::kF32, false}};

CudnnRequests requests_of_selftest(const Precision& precision) {
  CudnnRequests requests;
  for (const models::SmallModel& small : models::small_models()) {
    graph::GraphOptions options(small.purpose);
    options.compute = precision.compute;
    options.lanes = small.lanes;
    add_requests(small.build(options), precision.tf32, requests);
  }
  return requests;
}

CudnnRequests requests_of_config(const std::string& path, const Precision& precision) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  run::ConfigOverrides overrides;
  overrides.set = {fmt::format("execution.precision={}",
                               precision.compute == DType::kF32 ? "FP32" : precision.name),
                   fmt::format("execution.tf32={}", precision.tf32)};
  const run::PreparedRun run = run::prepare_run(
      run::choose_lanes(run::open_config(run::read_config(text.str(), path, overrides))).opened,
      collectives::topology_of({"here"}),
      run::RunPurpose::kTrain,
      cuda::planned_ops(),
      {.may_assume_data = true});
  CudnnRequests requests;
  const auto add = [&](const graph::Graph& graph) {
    add_requests(graph, precision.tf32, requests);
  };
  add(run.graphs->training);
  if (run.graphs->evaluation) add(*run.graphs->evaluation);
  for (const graph::Graph& graph : run.graphs->length_bucket_training) add(graph);
  for (const graph::Graph& graph : run.graphs->length_bucket_evaluation) add(graph);
  return requests;
}

// On one line.
std::string flat(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\t') c = ' ';
  return text;
}

// The answers for one GPU; each key is asked once.
class Answers {
 public:
  explicit Answers(const GpuKind& gpu) : gpu_(description_of(gpu)) {}

  void print(const std::string& network, const CudnnKey& key) {
    const Answer& answer = answer_of(key);
    const std::string head = fmt::format("{}\t{}\t{}\t{}\t{}",
                                         network,
                                         test::precision_of(key),
                                         test::pass_of(key),
                                         test::extents_of(key),
                                         test::planned_bytes(key));
    if (answer.planned.refusal.empty())
      fmt::print("plan\t{}\t{}\t{}\t{}\t{}\n",
                 head,
                 answer.planned.workspace_bytes,
                 answer.planned.engine,
                 answer.first.workspace_bytes,
                 answer.first.engine);
    else
      fmt::print(
          "refused\t{}\t{}\t{}\n", head, test::instead_of(key), flat(answer.planned.refusal));
  }

 private:
  struct Answer {
    cuda::CudnnAnswer planned, first;
  };
  const Answer& answer_of(const CudnnKey& key) {
    const auto found = answers_.find(key);
    if (found != answers_.end()) return found->second;
    Answer answer;
    answer.first = test::answer_of(key, gpu_, {.build = true, .any_workspace = true});
    const bool fits = static_cast<size_t>(answer.first.workspace_bytes) <= test::planned_bytes(key);
    answer.planned = fits ? answer.first : test::answer_of(key, gpu_, {.build = true});
    return answers_.emplace(key, std::move(answer)).first->second;
  }

  cuda::DescribedGpu gpu_;
  std::map<CudnnKey, Answer> answers_;
};

const Precision& precision_of(const std::string& name) {
  for (const Precision& precision : kPrecisions)
    if (name == precision.name) return precision;
  throw std::runtime_error("no precision '" + name + "'");
}

const GpuKind& gpu_of(const std::string& name) {
  for (const GpuKind& gpu : kGpus)
    if (name == gpu.short_name) return gpu;
  throw std::runtime_error("no GPU '" + name + "' in tests/cuda/described_gpus.h");
}

void print_network(const std::string& name, const Precision& precision, Answers& answers) {
  try {
    const CudnnRequests requests =
        name == "selftest" ? requests_of_selftest(precision) : requests_of_config(name, precision);
    for (const std::string& kept : requests.kept)
      fmt::print("kept\t{}\t{}\t{}\n", name, precision.name, kept);
    for (const CudnnKey& key : requests.keys) answers.print(name, key);
  } catch (const std::exception& error) {
    fmt::print("error\t{}\t{}\t{}\n", name, precision.name, flat(error.what()));
  }
  std::fflush(stdout);
}

constexpr int kSkipped = 77;

int run(int argc, char** argv) {
  const std::string why_not = test::why_cudnn_cannot_be_asked();
  if (argc < 4) throw std::runtime_error("usage: cudnn_answers GPU PRECISION CONFIG...");
  if (!why_not.empty()) {
    fmt::print("skipped: {}\n", why_not);
    return kSkipped;
  }
  fmt::print("version\t{}\n", cuda::cudnn_version());
  Answers answers(gpu_of(argv[1]));
  for (int i = 3; i < argc; ++i) print_network(argv[i], precision_of(argv[2]), answers);
  return 0;
}

}  // namespace
}  // namespace lockstep::test

int main(int argc, char** argv) {
  try {
    return lockstep::test::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
