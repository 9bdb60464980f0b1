#include "models/registry.h"

#include <utility>

#include "models/model.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/graph/autodiff.h"
#include "runtime/graph/schema.h"

namespace lockstep::models {
namespace {

std::unique_ptr<const Model> make(const ModelConfig& model) {
  return std::visit([](const auto& config) { return make_model(config); }, model);
}

template <size_t... kIndices>
std::vector<ModelConfig> defaults(std::index_sequence<kIndices...>) {
  return {ModelConfig(std::in_place_index<kIndices>)...};
}

// The traits of all families with their default configs.
const std::vector<config::ModelTraits>& default_traits() {
  static const std::vector<config::ModelTraits> all = [] {
    std::vector<config::ModelTraits> traits;
    for (const ModelConfig& model : all_models()) traits.push_back(open_model(model)->traits());
    return traits;
  }();
  return all;
}

}  // namespace

double Model::flops_per_sample(const ModelIo& io) const {
  const graph::Graph graph = build(io, 1, 0, graph::Purpose::kInference);
  int64_t flops = 0;
  for (const graph::Op& op : graph.ops) {
    if (op.kind == graph::OpKind::kConv2d || op.kind == graph::OpKind::kLinear)
      flops += graph::schema_of(op.kind).flops(graph, op);
  }
  return 3 * static_cast<double>(flops);
}

int64_t extent(const ExtentsOf& extents_of,
               const std::string& name,
               size_t dimension,
               int64_t otherwise) {
  const auto extents = extents_of(name);
  return extents && dimension < extents->size() ? (*extents)[dimension] : otherwise;
}

std::vector<ModelConfig> all_models() {
  return defaults(std::make_index_sequence<std::variant_size_v<ModelConfig>>());
}

std::string sections_where(const std::function<bool(const config::ModelTraits&)>& is_true,
                           const std::string& before) {
  std::vector<std::string> sections;
  for (const config::ModelTraits& traits : default_traits())
    if (is_true(traits)) sections.push_back(before + traits.section);
  return joined_with("or", sections);
}

std::optional<config::ModelTraits> traits_by_tensors(
    const std::function<bool(const std::string& name)>& has_tensor) {
  for (const config::ModelTraits& traits : default_traits())
    if (traits.known_by != nullptr && has_tensor(traits.known_by)) return traits;
  return std::nullopt;
}

std::vector<std::string> Model::problems() const {
  try {
    check();
  } catch (const ConfigError& error) {
    return {error.what()};
  }
  return {};
}

std::vector<std::string> problems_of_model(const ModelConfig& model) {
  return make(model)->problems();
}

OpenedModel::OpenedModel(const ModelConfig& config, const RunBatches& run)
    : config_(config), run_(run), model_(make(config)) {
  model_->expect(run);
  traits_ = model_->traits();
  traits_.section = config::name_of(config);
  if (run.answers && traits_.text_task == config::TextTask::kNextToken)
    traits_.text_task = config::TextTask::kAnswers;
}

OpenedModel::~OpenedModel() = default;

void OpenedModel::check() const { model_->check(); }

ModelConfig OpenedModel::resolved(const ModelIo& io) const { return model_->resolve(io); }

std::optional<ModelConfig> OpenedModel::with_recorded_parameters(
    const std::set<std::string>& names) const {
  return model_->with_recorded_parameters(names);
}

graph::Graph OpenedModel::build(const ModelIo& io,
                                int64_t lane_batch,
                                const graph::GraphOptions& options,
                                int64_t tokens) const {
  graph::Graph graph = model_->build(io, lane_batch, tokens, options);
  if (options.purpose != graph::Purpose::kTraining) return graph;
  if (options.prepare_parameters) options.prepare_parameters(graph);
  graph::differentiate(graph);
  return graph;
}

std::string OpenedModel::mixing_node(const ModelIo& io,
                                     int64_t global_batch,
                                     int64_t lane_batch) const {
  return model_->mixing_node(io, global_batch, lane_batch);
}

int64_t OpenedModel::fewest_samples() const { return model_->fewest_samples(); }

int64_t OpenedModel::only_batch(const ModelIo& io) const { return model_->only_batch(io); }

std::string OpenedModel::reason_for_fp32() const { return model_->reason_for_fp32(); }

double OpenedModel::flops_per_sample(const ModelIo& io) const {
  const double of_text = model_->flops_per_sample(io);
  if (!run_.answers) return of_text;
  // Two texts, whose reference is a forward pass, a third of the work.
  return 2 * of_text * (traits_.text_task == config::TextTask::kAnswers ? 4.0 / 3 : 1);
}

ModelIo OpenedModel::io_of_weights(const ExtentsOf& extents_of) const {
  return model_->io_of_weights(extents_of);
}

void OpenedModel::release() const { model_->release(); }

std::shared_ptr<const OpenedModel> open_model(const ModelConfig& model, const RunBatches& run) {
  return std::make_shared<const OpenedModel>(model, run);
}

std::shared_ptr<const OpenedModel> reopen_model(const std::shared_ptr<const OpenedModel>& opened,
                                                const ModelConfig& config) {
  return config == opened->config() ? opened : open_model(config, opened->run());
}

graph::Graph build_model(const ModelConfig& model,
                         const ModelIo& io,
                         int64_t lane_batch,
                         const graph::GraphOptions& options,
                         int64_t tokens) {
  return open_model(model)->build(io, lane_batch, options, tokens);
}

ModelConfig resolve_model(const ModelConfig& model, const ModelIo& io) {
  return make(model)->resolve(io);
}

}  // namespace lockstep::models
