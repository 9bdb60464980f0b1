// The family of models from ONNX files: traits, checks and graphs of a network that the user
// brings.

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "models/model.h"
#include "models/onnx/bind/data_inputs.h"
#include "models/onnx/bind/network_sizes.h"
#include "models/onnx/bind/objective.h"
#include "models/onnx/bind/opened_file.h"
#include "models/onnx/bind/output_checks.h"
#include "models/onnx/bind/output_extents.h"
#include "models/onnx/bind/untrainable.h"
#include "models/onnx/freed_batch.h"
#include "models/onnx/nodes/lowering/lowering.h"
#include "models/onnx/opened_networks.h"
#include "models/onnx/preprocessing_nodes.h"
#include "models/onnx/samples/mixing.h"
#include "models/onnx/trained_file.h"
#include "models/onnx/write/write_file.h"
#include "runtime/base/error.h"
#include "runtime/graph/forward_fusion.h"
#include "runtime/graph/schema.h"

namespace lockstep::onnx {
namespace {

// Limits of the search for a node that mixes samples: the samples of the batch, and the bytes of
// the network's folded values.
constexpr int64_t kMaxSamplesToMix = 32, kMaxBytesToMix = int64_t{256} << 20;

// A start of a run needs three networks of OpenedNetworks: the usual one of check(), that of the
// run's lanes, and that of the batch in which mixing_node() looks, with which check() compares the
// usual one.
class OnnxModel final : public models::Model {
 public:
  explicit OnnxModel(const OnnxConfig& config) : config_(config) {}

  void expect(const models::RunBatches& run) const override {
    run_ = run;
    file_.expect_lanes(run.lane);
  }

  void check() const override {
    outputs_of(file_.opened(), config_);
    check_objective(config_);
    const auto& [network, form] = file_.usual();
    check_outputs(config_, file_.inputs(), *network, form.batch);
    check_sizes_of_pixels(
        config_, file_.inputs(), *network, file_.sizes_of(*network).output_numbers());
    if (run_.global == 0 || !file_.has_open_images()) check_extents_of_outputs();
    file_.sizes_of(*network).require_tables();
    require_unshared(file_.opened(), config_);
    // Throws if a node cannot be lowered to ops.
    append(checked_purpose(), *network, form, file_.sizes_of(*network).io());
  }

  std::vector<std::string> problems() const override {
    std::vector<std::string> found;
    const auto tell = [&](const std::string& problem) {
      if (std::ranges::count(found, problem) == 0) found.push_back(problem);
    };
    const auto attempt = [&](const auto& work) {
      try {
        work();
      } catch (const ConfigError& error) {
        tell(error.what());
      }
    };
    attempt([&] {
      file_.opened();
      attempt([&] { check_objective(config_); });
      attempt([&] { require_unshared(file_.opened(), config_); });
      attempt([&] {
        std::ranges::for_each(
            unsupported_ops(file_.opened().file, outputs_of(file_.opened(), config_)), tell);
      });
      attempt([&] {
        std::ranges::for_each(node_problems(file_.inputs(), file_.opened(), config_), tell);
      });
    });
    if (found.empty()) attempt([&] { check(); });
    return found;
  }

  config::ModelTraits traits() const override {
    if (config_.file.empty()) return {.loss = config_.loss};
    const Network& network = *file_.usual().network;
    config::ModelTraits traits{
        .file = config_.file,
        .input = file_.inputs().kind(),
        .computes_loss = computes_loss(config_),
        .loss = loss_of(scored(config_)),
        .huber_delta = config_.huber_delta,
        .outputs = file_.sizes_of(network).outputs(),
        .outputs_field = "file",
        .normalises_lanes = file_.sizes_of(network).normalises_lanes(),
        .pixel_classes = !file_.sizes_of(network).class_extents().empty(),
        .targets = asked_targets(file_.opened(), config_, file_.inputs(), network)};
    if (const auto& diffusion = config_.diffusion) {
      traits.loss = Loss::kMeanSquaredError;
      traits.outputs = file_.sizes_of(network).classes();
      traits.diffusion =
          config::DiffusionTraits{.fields = "diffusion.",
                                  .schedule = diffusion->schedule,
                                  .target = diffusion->target,
                                  .with_classes = file_.inputs().has(Meaning::kClasses),
                                  .without_classes = diffusion->label_dropout > 0};
    }
    if (is_transcript(config_)) traits.transcript = file_.sizes_of(network).transcript();
    if (file_.inputs().kind() != config::ModelInput::kTokens) return traits;
    traits.context = file_.inputs().context();
    traits.text_task = text_task_of(config_);
    if (config_.task != Task::kNextToken) traits.segments = file_.sizes_of(network).segments();
    traits.segments_field = traits.vocabulary_field = "file";
    traits.vocabulary = file_.sizes_of(network).vocabulary();
    traits.tells_documents_apart = false;
    return traits;
  }

  ModelConfig resolve(const models::ModelIo& io) const override {
    const std::shared_ptr<const Network> bound = file_.network_of(file_.any_form(io), io);
    const Network& network = *bound;
    check_sizes_of_pixels(
        config_, file_.inputs(), network, file_.sizes_of(network).output_numbers());
    if (file_.inputs().kind() == config::ModelInput::kFeatures &&
        file_.sizes_of(network).features() != io.features)
      throw ConfigError("model.onnx.file: {} takes {} features; the data has {}",
                        config_.file,
                        file_.sizes_of(network).features(),
                        io.features);
    if (has_parts(config_, file_.inputs())) return config_;  // the data were opened for them
    const Extents positions = file_.sizes_of(network).class_extents();
    if (!io.targets.empty() && io.targets.front().extents != positions)
      throw ConfigError(
          "model.onnx.file: {} has a class for each of {} positions; the data has labels of {}",
          config_.file,
          to_string(positions),
          to_string(io.targets.front().extents));
    const bool classes = has_labels(scored(config_)) || is_transcript(config_) || config_.diffusion;
    const int64_t outputs = config_.diffusion ? file_.sizes_of(network).classes()
                                              : file_.sizes_of(network).outputs(),
                  wanted = classes ? io.classes : io.target_columns;
    const bool good = computes_loss(scored(config_)) ||
                      (classes ? outputs >= wanted : wanted == 0 || outputs == wanted);
    if (!good && (!config_.diffusion || file_.inputs().has(Meaning::kClasses)))
      throw ConfigError("model.onnx.file: {} has {} {}; the data has {} {}",
                        config_.file,
                        outputs,
                        config_.diffusion ? "classes" : "outputs",
                        wanted,
                        classes ? "classes" : "target columns");
    return config_;
  }

  models::ModelIo io_of_weights(const models::ExtentsOf& /*extents_of*/) const override {
    return file_.sizes_of(*file_.usual().network).io();
  }

  // An older revision used the rule for files that declare nothing.
  std::optional<ModelConfig> with_recorded_parameters(
      const std::set<std::string>& names) const override {
    if (config_.parameters != OnnxConfig::Parameters::kDeclared || !file_.opened().file.declares ||
        parameter_names() == names)
      return std::nullopt;
    OnnxConfig guessed = config_;
    guessed.parameters = OnnxConfig::Parameters::kGuessed;
    try {
      if (OnnxModel(guessed).parameter_names() == names) return guessed;
    } catch (const ConfigError&) {  // the model cannot be trained with it
    }
    return std::nullopt;
  }

  // The file's initializers with the elements of trained parameters.
  std::map<std::string, Array> trained(const TrainedElements& elements_of_parameter) const {
    const auto& [bound, form] = file_.usual();
    const Network& network = *bound;
    std::map<std::string, Array> arrays;
    const Appended made = append(graph::GraphOptions(graph::Purpose::kTraining),
                                 network,
                                 form,
                                 file_.sizes_of(network).io());
    for (const LoweredParameter& parameter : made.parameters) {
      const Value& value = network.values[static_cast<size_t>(parameter.value)];
      arrays[value.name] =
          array_of(value.array.type,
                   value.extents,
                   elements_in_file(value, parameter.storage, elements_of_parameter(value.name)));
    }
    return arrays;
  }

  void add_preprocessing(const config::Preprocessing& preprocessing, Additions& additions) const {
    const std::vector<PreparedInput> prepared = prepared_inputs(file_.inputs().meanings());
    const size_t output = outputs_of(file_.opened(), scored(config_)).front();
    const std::shared_ptr<const OpenedFile> written = open_file(config_);  // maybe of a fixed batch
    add_preprocessing_nodes(written->file, prepared, output, preprocessing, additions);
  }

  graph::Graph build(const models::ModelIo& io,
                     int64_t lane_batch,
                     int64_t tokens,
                     const graph::GraphOptions& options) const override {
    const BoundForm form = {lane_batch,
                            tokens > 0 ? tokens : file_.inputs().context(),
                            file_.sample_of(io),
                            is_stream(config_, options)};
    const std::shared_ptr<const Network> network = file_.network_of(form, io);
    graph::Graph graph = append(options, *network, form, io).graph;
    const bool learns = std::ranges::any_of(
        graph.parameters, [&](TensorId id) { return graph[id].running_momentum == 0; });
    if (options.purpose == graph::Purpose::kTraining && !learns)
      throw ConfigError(
          "model.onnx.file: no initializer of {} learns; allowed: a file with parameters, or "
          "model.onnx.trainable and constant that leave one or more",
          config_.file);
    return graph;
  }

  // Looks in the global batch, of at most kMaxSamplesToMix samples, because the number of samples
  // that mix may depend on it; or in a lane's batch, if the file accepts no such batch. The network
  // of another batch tells which constants depend on the batch.
  std::string mixing_node(const models::ModelIo& io,
                          int64_t global_batch,
                          int64_t lane_batch) const override {
    const int64_t batch = mixing_batch(global_batch);
    const int64_t half = batch > 3 ? batch / 2 : 2 * batch;
    std::vector<BoundBatch> bound;
    const auto add = [&](int64_t samples) {
      const auto is_it = [&](const BoundBatch& other) { return other.batch == samples; };
      if (bound.size() == 2 || std::ranges::any_of(bound, is_it)) return;
      try {
        bound.push_back(
            {file_.networks().get(file_.form_of(samples, io), kMaxBytesToMix), samples});
      } catch (const ConfigError&) {  // the file does not accept so many
      }
    };
    add(batch);
    // The second batch: the one that the lanes need anyway, or one that is bound already.
    if (!bound.empty() && lane_batch > 1 && config_.task != Task::kNextToken) add(lane_batch);
    if (const auto other = file_.networks().other_batch(file_.form_of(batch, io));
        !bound.empty() && other)
      add(*other);
    add(half);
    add(lane_batch);
    if (bound.empty()) return "";
    if (bound.size() == 2) compare_extents_of_outputs(*bound[0].network, *bound[1].network);
    const std::string node = mixing_node_of(bound);
    if (node.empty() || bound.size() < 2 || bound[1].batch > 1) return node;
    // With one sample a constant may have a form of its own: the answer is taken from two larger
    // batches.
    bound.pop_back();
    add(half);
    return mixing_node_of(bound);
  }

  int64_t fewest_samples() const override { return file_.usual().form.batch; }

  int64_t only_batch(const models::ModelIo& io) const override { return file_.only_batch(io); }

  std::string reason_for_fp32() const override {
    if (config_.diffusion) return "16 bits cannot distinguish all times of model.onnx.diffusion";
    const auto& [network, form] = file_.usual();
    return append(checked_purpose(), *network, form, file_.sizes_of(*network).io()).reason_for_fp32;
  }

  // Includes matrix products outside of linear layers.
  double flops_per_sample(const models::ModelIo& io) const override {
    const int64_t samples = file_.any_form(io).batch;
    const graph::Graph graph = build(io, samples, 0, graph::Purpose::kInference);
    int64_t flops = 0;
    for (const graph::Op& op : graph.ops) {
      if (op.kind == graph::OpKind::kConv2d || op.kind == graph::OpKind::kLinear ||
          op.kind == graph::OpKind::kBatchedMatmul || op.kind == graph::OpKind::kAttention)
        flops += graph::schema_of(op.kind).flops(graph, op);
    }
    return 3 * static_cast<double>(flops) / static_cast<double>(samples);
  }

  void release() const override { file_.release(); }

 private:
  using Task = OnnxConfig::Task;

  struct Appended {
    graph::Graph graph;
    std::vector<LoweredParameter> parameters;
    std::string reason_for_fp32;
  };

  struct BoundBatch {
    std::shared_ptr<const Network> network;
    int64_t batch;
  };

  // Those of the graph that has all nodes.
  graph::Purpose checked_purpose() const {
    return computes_loss(config_) ? graph::Purpose::kEvaluation : graph::Purpose::kInference;
  }

  static int64_t mixing_batch(int64_t global_batch) {
    return std::clamp<int64_t>(global_batch, 2, kMaxSamplesToMix);
  }
  std::string mixing_node_of(const std::vector<BoundBatch>& bound) const {
    std::vector<BoundNetwork> networks;
    for (const BoundBatch& each : bound) networks.push_back({*each.network, each.batch});
    return onnx::mixing_node(networks[0],
                             networks.size() > 1 ? &networks[1] : nullptr,
                             file_.sizes_of(*bound[0].network).output_numbers());
  }

  // Running statistics are among them.
  std::set<std::string> parameter_names() const {
    const auto& [network, form] = file_.usual();
    const graph::Graph graph = append(graph::GraphOptions(graph::Purpose::kTraining),
                                      *network,
                                      form,
                                      file_.sizes_of(*network).io())
                                   .graph;
    std::set<std::string> names;
    for (const TensorId id : graph.parameters) names.insert(graph[id].name);
    return names;
  }

  // Compares with the network of another batch: that of mixing_node() if a run follows, which needs
  // it too.
  void check_extents_of_outputs() const {
    const auto& [network, usual_form] = file_.usual();
    const int64_t twice = 2 * usual_form.batch;
    for (const int64_t samples : {run_.global > 0 ? mixing_batch(run_.global) : twice, twice}) {
      if (samples == usual_form.batch) continue;
      BoundForm form = usual_form;
      form.batch = samples;
      try {
        const auto other = samples == twice ? file_.networks().get(form)
                                            : file_.networks().get(form, kMaxBytesToMix);
        return compare_extents_of_outputs(*network, *other);
      } catch (const OutputExtentsError&) {
        throw;
      } catch (const ConfigError&) {  // the file does not accept so many
      }
    }
  }

  void compare_extents_of_outputs(const Network& network, const Network& other) const {
    require_same_extents(config_.file, file_.sizes_of(network).output_numbers(), network, other);
  }

  Appended append(const graph::GraphOptions& options,
                  const Network& bound,
                  const BoundForm& form,
                  const models::ModelIo& io) const {
    graph::GraphBuilder builder(options);
    // Inference has no targets, and none of the nodes that need them.
    const bool predicts =
        options.purpose == graph::Purpose::kInference && !config_.predictions.empty();
    const Network predicting =
        predicts ? without_other_nodes(bound, {file_.sizes_of(bound).output_numbers()[1]})
                 : Network();
    const Network& network = predicts ? predicting : bound;
    const NetworkSizes sizes = file_.sizes_of(bound);
    const int64_t ids = config_.diffusion ? sizes.classes() : sizes.vocabulary();
    const bool targets = options.purpose != graph::Purpose::kInference ||
                         (computes_loss(config_) && !predicts) ||
                         (compares_vectors(config_) && file_.inputs().has(Meaning::kTarget));
    const DataInputs data = append_data_inputs(
        builder, file_.opened(), config_, file_.inputs(), network, io, ids, targets);
    LoweringOptions how = {
        .synchronised_norms = config_.batch_norm == OnnxConfig::BatchNorm::kSynchronised,
        .documents = data.documents};
    for (size_t index = 0; index < network.inputs.size(); ++index) {
      const DataInputs::Input& input = data.inputs[index];
      if (input.tensor == kNoTensor) continue;
      if (input.limit > 0) how.limits[network.inputs[index]] = input.limit;
      if (file_.inputs().meanings()[index] == Meaning::kMask)
        how.token_masks.push_back(network.inputs[index]);
    }
    const auto probe = how.token_masks.empty() ? nullptr : file_.probe_of(form);
    how.probe = probe.get();
    Lowering lowering(network, builder, how);
    for (size_t index = 0; index < network.inputs.size(); ++index)
      if (const DataInputs::Input& input = data.inputs[index]; input.tensor != kNoTensor)
        lowering.layouts().set(network.inputs[index], input.tensor, input.channels_last);
    try {
      append_objective(lowering, config_, data, sizes.output_numbers());
    } catch (const ConfigError& error) {
      throw ConfigError("{}: {}", config_.file, error.what());
    }
    std::vector<LoweredParameter> parameters = lowering.parameters().all();
    graph::Graph graph = std::move(builder).finish();
    graph::fuse_forward(graph);
    return {std::move(graph), std::move(parameters), lowering.reason_for_fp32()};
  }

  const OnnxConfig config_;
  const OpenedNetworks file_{config_};
  mutable models::RunBatches run_;  // set before all other calls
};

}  // namespace

void write_trained(const OnnxConfig& config,
                   const std::string& path,
                   const TrainedElements& elements,
                   const TrainedFileOptions& options) {
  const OnnxModel model(config);
  Additions additions{.metadata = options.metadata};
  if (options.preprocessing != nullptr) model.add_preprocessing(*options.preprocessing, additions);
  const auto arrays = elements ? model.trained(elements) : std::map<std::string, Array>();
  write_file(config.file, path, arrays, additions);
  report_fixed_batch(config, path);
}

}  // namespace lockstep::onnx

namespace lockstep::models {

template <>
std::unique_ptr<const Model> make_model(const OnnxConfig& config) {
  return std::make_unique<onnx::OnnxModel>(config);
}

}  // namespace lockstep::models
