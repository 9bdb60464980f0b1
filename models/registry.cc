#include "models/registry.h"

#include <utility>

#include "models/model.h"
#include "runtime/base/error.h"
#include "runtime/graph/autodiff.h"
#include "runtime/graph/schema.h"

namespace lockstep {
namespace {

std::unique_ptr<const Model> model_of(const ModelConfig& model) {
  return std::visit([](const auto& config) { return make_model(config); }, model);
}

template <size_t... kIndices>
std::vector<ModelConfig> defaults(std::index_sequence<kIndices...>) {
  return {ModelConfig(std::in_place_index<kIndices>)...};
}

}  // namespace

double Model::flops_per_sample(const ModelIo& io) const {
  const Graph graph = build(io, 1, 0, Purpose::kInference);
  int64_t flops = 0;
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::kConv2d || op.kind == OpKind::kLinear)
      flops += schema_of(op.kind).flops(graph, op);
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

ModelTraits traits_of(const ModelConfig& model) {
  ModelTraits traits = model_of(model)->traits();
  traits.section = name_of(model);
  return traits;
}

std::vector<ModelConfig> all_models() {
  return defaults(std::make_index_sequence<std::variant_size_v<ModelConfig>>());
}

std::string sections_where(const std::function<bool(const ModelTraits&)>& is_true,
                           const std::string& before) {
  std::vector<std::string> sections;
  for (const ModelConfig& model : all_models()) {
    const ModelTraits traits = traits_of(model);
    if (is_true(traits)) sections.push_back(before + traits.section);
  }
  std::string text;
  for (size_t i = 0; i < sections.size(); ++i)
    text += (i == 0 ? "" : i + 1 < sections.size() ? ", " : " or ") + sections[i];
  return text;
}

std::optional<ModelTraits> traits_by_tensors(
    const std::function<bool(const std::string& name)>& has_tensor) {
  for (const ModelConfig& model : all_models()) {
    const ModelTraits traits = traits_of(model);
    if (traits.known_by != nullptr && has_tensor(traits.known_by)) return traits;
  }
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
  return model_of(model)->problems();
}

void check_own_fields(const ModelConfig& model) { model_of(model)->check(); }

ModelConfig resolve_model(const ModelConfig& model, const ModelIo& io) {
  return model_of(model)->resolve(io);
}

std::optional<ModelConfig> with_recorded_parameters(const ModelConfig& model,
                                                    const std::set<std::string>& names) {
  return model_of(model)->with_recorded_parameters(names);
}

Graph build_model(const ModelConfig& model,
                  const ModelIo& io,
                  int64_t lane_batch,
                  const GraphOptions& options,
                  int64_t tokens) {
  Graph graph = model_of(model)->build(io, lane_batch, tokens, options);
  if (options.purpose != Purpose::kTraining) return graph;
  if (options.prepare_parameters) options.prepare_parameters(graph);
  differentiate(graph);
  return graph;
}

std::string mixing_node(const ModelConfig& model,
                        const ModelIo& io,
                        int64_t global_batch,
                        int64_t lane_batch) {
  return model_of(model)->mixing_node(io, global_batch, lane_batch);
}

int64_t fewest_samples(const ModelConfig& model) { return model_of(model)->fewest_samples(); }

double model_flops_per_sample(const ModelConfig& model, const ModelIo& io) {
  return model_of(model)->flops_per_sample(io);
}

ModelIo io_of_weights(const ModelConfig& model, const ExtentsOf& extents_of) {
  return model_of(model)->io_of_weights(extents_of);
}

}  // namespace lockstep
