#include "models/huggingface/lora_layers.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "models/huggingface/family.h"
#include "models/huggingface/folder.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/file_form.h"
#include "runtime/checkpoint/match.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/lora.h"

namespace lockstep::huggingface {
namespace {

constexpr const char* kWeight = ".weight";

std::string without_weight(std::string name) {
  if (name.ends_with(kWeight)) name.resize(name.size() - std::string(kWeight).size());
  return name;
}

// "a\.b" of "a.b", so that a pattern finds the name itself.
std::string escaped(const std::string& name) {
  std::string text;
  for (const char c : name) {
    if (c == '.') text += '\\';
    text += c;
  }
  return text;
}

const NamedSlice* find(const std::vector<NamedSlice>& slices, const std::string& name) {
  const auto found = std::find_if(
      slices.begin(), slices.end(), [&](const NamedSlice& slice) { return slice.name == name; });
  return found == slices.end() ? nullptr : &*found;
}

std::string a_linear_layer(const RunConfig& config, const Graph& graph) {
  for (const Op& op : graph.ops) {
    if (op.kind != OpKind::kLinear) continue;
    const Tensor& weight = graph[op.inputs[1]];
    if (weight.role == Role::kParameter && !is_lora(weight.name))
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
    const int64_t own = part.rows > 0 ? part.rows : rows / part.equal_parts;
    modules.push_back({without_weight(part.name), {first, own}});
    first += own;
  }
  return modules;
}

std::vector<LoraModule> matching_modules(const ModelConfig& model,
                                         const std::string& weight,
                                         int64_t rows,
                                         const Pattern& pattern) {
  std::vector<LoraModule> modules = modules_of(model, weight, rows);
  std::erase_if(modules, [&](const LoraModule& module) { return !pattern.found_in(module.name); });
  return modules;
}

LoraLayers lora_layers(const RunConfig& config) {
  if (!config.adapter.lora) return {};
  const LoraConfig& lora = *config.adapter.lora;
  const auto pattern = std::make_shared<const Pattern>("adapter.lora.match", lora.match);
  return {.rank = lora.rank,
          .alpha = lora.alpha,
          .dropout = lora.dropout,
          .parts = [pattern, model = config.model](const std::string& weight, int64_t rows) {
            std::vector<OutputRows> parts;
            for (const LoraModule& module : matching_modules(model, weight, rows, *pattern))
              parts.push_back(module.outputs);
            return parts;
          }};
}

void freeze_base(const RunConfig& config, Graph& graph) {
  if (!config.adapter.lora) return;
  const LoraConfig& lora = *config.adapter.lora;
  const Pattern also("adapter.lora.train_also", lora.train_also);
  bool has_lora = false, has_others = false;
  for (const TensorId id : graph.parameters) {
    Tensor& parameter = graph[id];
    if (parameter.running_momentum > 0) continue;
    const bool other =
        !is_lora(parameter.name) && !lora.train_also.empty() && also.found_in(parameter.name);
    has_lora |= is_lora(parameter.name);
    has_others |= other;
    parameter.frozen = !is_lora(parameter.name) && !other;
  }
  if (!has_lora)
    refuse_value("adapter.lora.match",
                 in_quotes(lora.match),
                 fmt::format("what is found in the name of a linear layer of model.{}, such as {}",
                             name_of(config.model),
                             in_quotes(a_linear_layer(config, graph))));
  if (!has_others && !lora.train_also.empty())
    refuse_value("adapter.lora.train_also",
                 in_quotes(lora.train_also),
                 fmt::format("what is found in the name of a parameter of model.{}, such as {}",
                             name_of(config.model),
                             in_quotes(graph[graph.parameters.front()].name)));
}

std::string train_also_with_new_heads(const RunConfig& config, const Graph& graph) {
  std::string also = config.adapter.lora->train_also;
  const Family* const family = family_of(config.model);
  if (family == nullptr || !is_model_folder(config.train.init_from)) return also;
  const Pattern given("adapter.lora.train_also", also);
  const auto there = extents_in(config.train.init_from, config.model);
  for (const TensorId id : graph.parameters) {
    const Tensor& parameter = graph[id];
    if (!family->is_head(parameter.name)) continue;
    const NamedSlice slice = {parameter.name, parameter.shape, 0, parameter.channels_last};
    const auto extents = there(parameter.name);
    const bool is_new = !extents || *extents != file_extents(slice);
    if (is_new && (also.empty() || !given.found_in(parameter.name)))
      also += (also.empty() ? "^" : "|^") + escaped(parameter.name) + "$";
  }
  return also;
}

std::vector<NamedSlice> base_slices(const std::vector<NamedSlice>& slices) {
  std::vector<NamedSlice> base = slices;
  std::erase_if(base, [](const NamedSlice& slice) { return is_lora(slice.name); });
  return base;
}

void merge_lora(const RunConfig& config, const std::vector<NamedSlice>& slices, float* flat) {
  if (!config.adapter.lora) return;
  const LoraLayers layers = lora_layers(config);
  const double scale = static_cast<double>(layers.alpha) / static_cast<double>(layers.rank);
  for (const NamedSlice& slice : slices) {
    if (!slice.name.ends_with(kLoraA)) continue;
    const std::string layer = slice.name.substr(0, slice.name.size() - std::string(kLoraA).size());
    const NamedSlice* const weight = find(slices, layer + kWeight);
    const NamedSlice* const b_slice = find(slices, layer + kLoraB);
    if (weight == nullptr || b_slice == nullptr)
      throw CheckpointError("{}: the layer {} lacks its weight or its LoRA", slice.name, layer);
    const int64_t rank = layers.rank, inputs = weight->shape[1];
    const float *a = flat + slice.offset, *b = flat + b_slice->offset;
    for (const OutputRows& part : layers.parts(weight->name, weight->shape[0])) {
      for (int64_t row = 0; row < part.rows; ++row, b += rank) {
        float* const to = flat + weight->offset + (part.first + row) * inputs;
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
}

void read_merged(const std::filesystem::path& folder,
                 const CheckpointState& state,
                 const RunConfig& config,
                 const std::vector<NamedSlice>& slices,
                 float* flat) {
  if (!config.adapter.lora) return read_model(folder, state, slices, flat);
  std::vector<float> all(static_cast<size_t>(state.flat_elements));
  read_model(folder, state, state.layout, all.data());
  merge_lora(config, state.layout, all.data());
  check_match(
      shapes_in_memory(base_slices(state.layout)), shapes_in_memory(slices), folder.string());
  for (const NamedSlice& slice : slices)
    std::copy_n(all.data() + find(state.layout, slice.name)->offset,
                slice.shape.elements(),
                flat + slice.offset);
}

}  // namespace lockstep::huggingface
