#include "models/huggingface/lora_layers.h"

#include <algorithm>
#include <memory>
#include <set>

#include "models/huggingface/family.h"
#include "models/huggingface/folder.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/checkpoint/format/file_layout.h"
#include "runtime/checkpoint/format/match.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/lora.h"

namespace lockstep::huggingface {
namespace {

constexpr const char* kWeight = ".weight";

std::string without_weight(std::string name) {
  if (name.ends_with(kWeight)) name.resize(name.size() - std::string(kWeight).size());
  return name;
}

// Escapes dots, so that a pattern matches the name literally: "a.b" becomes "a\.b".
std::string escaped(const std::string& name) {
  std::string text;
  for (const char c : name) {
    if (c == '.') text += '\\';
    text += c;
  }
  return text;
}

std::string a_linear_layer(const RunConfig& config, const graph::Graph& graph) {
  for (const graph::Op& op : graph.ops) {
    if (op.kind != graph::OpKind::kLinear) continue;
    const graph::Tensor& weight = graph[op.inputs[graph::LinearIn::kWeight]];
    if (weight.role == graph::Role::kParameter && !graph::is_lora(weight.name))
      return modules_of(config.model, weight.name, weight.shape[0]).front().name;
  }
  return "";
}

}  // namespace

std::vector<LoraModule> modules_of(const ModelConfig& model,
                                   const std::string& weight,
                                   int64_t rows) {
  const Family* const family = family_of(model);
  if (family == nullptr) return {{without_weight(weight), {0, rows}}};
  std::vector<LoraModule> modules;
  int64_t first = 0;
  for (const TensorPart& part : family->parts(model, weight)) {
    const int64_t part_rows = part.rows > 0 ? part.rows : rows / part.equal_parts;
    modules.push_back({without_weight(part.name), {first, part_rows}});
    first += part_rows;
  }
  return modules;
}

namespace {

// A LoRA of a tied embedding would apply to the output matrix but not to the embedding. Neither
// PEFT's format nor merged weights can represent that.
void refuse_lora_of_embedding(const RunConfig& config, const graph::Graph& graph) {
  for (const graph::Op& op : graph.ops) {
    if (op.kind != graph::OpKind::kEmbedding) continue;
    const graph::Tensor& table = graph[op.inputs[graph::EmbeddingIn::kToken]];
    const std::string lora = without_weight(table.name) + graph::kLoraA;
    const bool has_lora =
        std::ranges::any_of(graph.parameters, [&](TensorId id) { return graph[id].name == lora; });
    if (has_lora)
      config::refuse_value("adapter.lora.match",
                           in_quotes(config.adapter.lora->match),
                           "a pattern that does not match {}, which is both the embedding and "
                           "the output matrix",
                           modules_of(config.model, table.name, table.shape[0]).front().name);
  }
}

}  // namespace

std::vector<LoraModule> matching_modules(const ModelConfig& model,
                                         const std::string& weight,
                                         int64_t rows,
                                         const config::Pattern& pattern) {
  std::vector<LoraModule> modules = modules_of(model, weight, rows);
  std::erase_if(modules, [&](const LoraModule& module) { return !pattern.found_in(module.name); });
  return modules;
}

graph::LoraLayers lora_layers(const RunConfig& config) {
  if (!config.adapter.lora) return {};
  const LoraConfig& lora = *config.adapter.lora;
  const auto pattern = std::make_shared<const config::Pattern>("adapter.lora.match", lora.match);
  const auto trained_in_full =
      lora.train_also.empty()
          ? nullptr
          : std::make_shared<const config::Pattern>("adapter.lora.train_also", lora.train_also);
  return {.rank = lora.rank,
          .alpha = lora.alpha,
          .dropout = lora.dropout,
          .parts = [pattern, trained_in_full, model = config.model](const std::string& weight,
                                                                    int64_t rows) {
            std::vector<graph::OutputRows> parts;
            if (trained_in_full != nullptr && trained_in_full->found_in(weight)) return parts;
            for (const LoraModule& module : matching_modules(model, weight, rows, *pattern))
              parts.push_back(module.outputs);
            return parts;
          }};
}

void freeze_base(const RunConfig& config, graph::Graph& graph) {
  if (!config.adapter.lora) return;
  const LoraConfig& lora = *config.adapter.lora;
  const config::Pattern also("adapter.lora.train_also", lora.train_also);
  bool has_lora = false, has_others = false;
  for (const TensorId id : graph.parameters) {
    graph::Tensor& parameter = graph[id];
    if (parameter.running_momentum > 0) continue;
    const bool other = !graph::is_lora(parameter.name) && !lora.train_also.empty() &&
                       also.found_in(parameter.name);
    has_lora |= graph::is_lora(parameter.name);
    has_others |= other;
    parameter.frozen = !graph::is_lora(parameter.name) && !other;
  }
  refuse_lora_of_embedding(config, graph);
  if (!has_lora)
    config::refuse_value("adapter.lora.match",
                         in_quotes(lora.match),
                         "a pattern that matches the name of a linear layer of model.{}, such "
                         "as {}",
                         config::name_of(config.model),
                         in_quotes(a_linear_layer(config, graph)));
  if (!has_others && !lora.train_also.empty())
    config::refuse_value("adapter.lora.train_also",
                         in_quotes(lora.train_also),
                         "a pattern that matches the name of a parameter of model.{}, such as "
                         "{}",
                         config::name_of(config.model),
                         in_quotes(graph[graph.parameters.front()].name));
}

namespace {

using IsNewHead =
    std::function<bool(const checkpoint::NamedSlice&)>;  // whether a parameter is of a new head

// For weights from `path`: a head is new if they do not have it.
IsNewHead new_for_weights(const std::string& path,
                          const ModelConfig& model,
                          const std::vector<checkpoint::NamedSlice>& slices) {
  const Family* const family = family_of(model);
  if (family != nullptr && is_model_folder(path)) {
    return [family, there = extents_in(path, model, slices)](const checkpoint::NamedSlice& slice) {
      if (!family->is_head(slice.name)) return false;
      const auto extents = there(slice.name);
      return !extents || *extents != checkpoint::file_extents(slice);
    };
  }
  std::string head;
  try {
    if (!is_folder(path)) head = checkpoint::new_head_of(path, slices);
  } catch (const CheckpointError&) {  // reported when the weights are read
  }
  return [head](const checkpoint::NamedSlice& slice) {
    return !head.empty() && slice.name.starts_with(head);
  };
}

// For a resumed run: a head is new if it was trained, that is, if it was new when the run began.
IsNewHead new_in_run(const checkpoint::CheckpointState& checkpoint,
                     const ModelConfig& model,
                     const std::vector<checkpoint::NamedSlice>& slices) {
  std::set<std::string> learned;
  for (const checkpoint::NamedSlice& slice : checkpoint.layout) learned.insert(slice.name);
  for (const checkpoint::NamedSlice& slice : checkpoint::frozen_slices(checkpoint, slices))
    learned.erase(slice.name);
  return [learned, family = family_of(model), last = checkpoint::last_layer_of(slices)](
             const checkpoint::NamedSlice& slice) {
    const bool is_head = (family != nullptr && family->is_head(slice.name)) ||
                         (!last.empty() && slice.name.starts_with(last));
    return is_head && learned.contains(slice.name);
  };
}

}  // namespace

std::string train_also_with_new_heads(const RunConfig& config,
                                      const graph::Graph& graph,
                                      const checkpoint::CheckpointState* checkpoint) {
  const std::string& from = config.train.init_from;
  std::string also = config.adapter.lora->train_also;
  if (from.empty() || (checkpoint == nullptr && !is_there(from))) return also;
  const bool has_pattern = !also.empty();  // an empty pattern would match everything
  const config::Pattern given("adapter.lora.train_also", also);
  std::vector<checkpoint::NamedSlice> slices;
  for (const TensorId id : graph.parameters)
    slices.push_back({graph[id].name, graph[id].shape, 0, graph[id].channels_last});
  const IsNewHead is_new = checkpoint != nullptr ? new_in_run(*checkpoint, config.model, slices)
                                                 : new_for_weights(from, config.model, slices);
  for (const checkpoint::NamedSlice& slice : slices) {
    if (is_new(slice) && !(has_pattern && given.found_in(slice.name)))
      also += (also.empty() ? "^" : "|^") + escaped(slice.name) + "$";
  }
  return also;
}

std::vector<checkpoint::NamedSlice> base_slices(const std::vector<checkpoint::NamedSlice>& slices) {
  std::vector<checkpoint::NamedSlice> base = slices;
  std::erase_if(base,
                [](const checkpoint::NamedSlice& slice) { return graph::is_lora(slice.name); });
  return base;
}

namespace {

// weight (N, K) += scale B A in the rows of each part. `a` is (parts r, K) and `b` is (R, r), with
// the matrices of all parts one after the other; R is the sum of the parts' rows.
void add_product(const std::vector<graph::OutputRows>& parts,
                 int64_t rank,
                 int64_t inputs,
                 double scale,
                 const float* a,
                 const float* b,
                 float* weight) {
  for (const graph::OutputRows& part : parts) {
    for (int64_t row = 0; row < part.rows; ++row, b += rank) {
      float* const to = weight + (part.first + row) * inputs;
      for (int64_t column = 0; column < inputs; ++column) {
        double sum = 0;
        for (int64_t k = 0; k < rank; ++k)
          sum += static_cast<double>(b[k]) * static_cast<double>(a[k * inputs + column]);
        to[column] = static_cast<float>(to[column] + scale * sum);
      }
    }
    a += rank * inputs;
  }
}

}  // namespace

void merge_lora(const RunConfig& config,
                const std::vector<checkpoint::NamedSlice>& slices,
                float* flat) {
  if (!config.adapter.lora) return;
  const graph::LoraLayers layers = lora_layers(config);
  const double scale = static_cast<double>(layers.alpha) / static_cast<double>(layers.rank);
  for (const checkpoint::NamedSlice& a : slices) {
    if (!a.name.ends_with(graph::kLoraA)) continue;
    const std::string layer = a.name.substr(0, a.name.size() - std::string(graph::kLoraA).size());
    const checkpoint::NamedSlice* const weight = find_slice(slices, layer + kWeight);
    const checkpoint::NamedSlice* const b = find_slice(slices, layer + graph::kLoraB);
    if (weight == nullptr || b == nullptr)
      throw CheckpointError("{}: layer {} lacks its weight or lora_b", a.name, layer);
    const std::vector<graph::OutputRows> parts = layers.parts(weight->name, weight->shape[0]);
    const int64_t inputs = weight->shape[1];
    int64_t rows = 0;
    for (const graph::OutputRows& part : parts) rows += part.rows;
    if (a.shape != Shape({static_cast<int64_t>(parts.size()) * layers.rank, inputs}) ||
        b->shape != Shape({rows, layers.rank}))
      throw CheckpointError("{}: shape {} does not match adapter.lora with rank {} and match {}",
                            a.name,
                            to_string(a.shape),
                            layers.rank,
                            in_quotes(config.adapter.lora->match));
    add_product(parts,
                layers.rank,
                inputs,
                scale,
                flat + a.offset,
                flat + b->offset,
                flat + weight->offset);
  }
}

void read_merged(const std::filesystem::path& folder,
                 const checkpoint::CheckpointState& state,
                 const RunConfig& config,
                 const std::vector<checkpoint::NamedSlice>& slices,
                 float* flat,
                 bool average) {
  if (!config.adapter.lora && !average) return checkpoint::read_model(folder, state, slices, flat);
  std::vector<float> all(static_cast<size_t>(state.flat_elements));
  if (average)
    checkpoint::read_average(folder, state, state.layout, all);
  else
    checkpoint::read_model(folder, state, state.layout, all.data());
  if (config.adapter.lora) merge_lora(config, state.layout, all.data());
  checkpoint::require_match(checkpoint::shapes_in_memory(base_slices(state.layout)),
                            checkpoint::shapes_in_memory(slices),
                            folder.string());
  for (const checkpoint::NamedSlice& slice : slices)
    std::copy_n(all.data() + slice_named(state.layout, slice.name).offset,
                slice.shape.elements(),
                flat + slice.offset);
}

}  // namespace lockstep::huggingface
