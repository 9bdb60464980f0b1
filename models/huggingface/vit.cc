// Vision Transformer. Query, key and value of the folder are one tensor of the model.
#include <cmath>

#include "models/huggingface/family.h"
#include "models/huggingface/folder.h"
#include "models/huggingface/labels.h"
#include "models/huggingface/preprocessor.h"
#include "runtime/base/error.h"

namespace lockstep::huggingface {
namespace {

const VitConfig& config_of(const ModelConfig& model) { return std::get<VitConfig>(model); }

class Vit final : public Family {
 public:
  std::vector<std::string> types() const override { return {"vit"}; }
  const char* section() const override { return VitConfig::kName; }
  std::string base_prefix(const ModelConfig& /*model*/) const override { return "vit."; }

  ModelConfig read(ConfigFields& fields) const override {
    VitConfig vit;
    vit.layers = fields.integer("num_hidden_layers", 12);
    vit.heads = fields.integer("num_attention_heads", 12);
    vit.width = fields.integer("hidden_size", 768);
    vit.mlp_width = fields.integer("intermediate_size", 3072);
    vit.patch = fields.integer("patch_size", 16);
    vit.activation = fields.activation("hidden_act", Activation::kGeluErf);
    vit.dropout = static_cast<float>(fields.number("hidden_dropout_prob", 0));
    vit.attention_dropout = static_cast<float>(fields.number("attention_probs_dropout_prob", 0));
    vit.norm_epsilon = static_cast<float>(fields.number("layer_norm_eps", 1e-12));
    vit.qkv_bias = fields.boolean("qkv_bias", true);
    vit.classes = read_classes(fields);
    const std::string one_class = "single_label_classification";
    if (fields.text("problem_type", one_class) != one_class)
      fields.refuse("problem_type", "null or " + one_class);
    // The numbers of positions and channels are read from the tensors.
    fields.ignore("encoder_stride image_size num_channels pooler_act pooler_output_size");
    return vit;
  }

  config::ImageNormalisation read_images(const std::filesystem::path& folder) const override {
    return read_normalisation(folder);
  }
  void write_other_files(const ModelConfig& /*model*/,
                         const FolderOptions& options,
                         const Json& config,
                         const std::filesystem::path& folder) const override {
    const auto channels = config.at("num_channels").get<int64_t>();
    write_preprocessor(folder,
                       options.like,
                       config.at("image_size").get<int64_t>(),
                       config::normalisation_of(options.data, static_cast<size_t>(channels)),
                       options.images);
  }

  void write(const ModelConfig& model,
             const std::vector<checkpoint::NamedSlice>& slices,
             Json& config) const override {
    const VitConfig& vit = config_of(model);
    config["model_type"] = "vit";
    config["architectures"] = Json::array({Json("ViTForImageClassification")});
    config["num_hidden_layers"] = vit.layers;
    config["num_attention_heads"] = vit.heads;
    config["hidden_size"] = vit.width;
    config["intermediate_size"] = vit.mlp_width;
    config["patch_size"] = vit.patch;
    write_activation("hidden_act", vit.activation, config);
    config["hidden_dropout_prob"] = shortest(vit.dropout);
    config["attention_probs_dropout_prob"] = shortest(vit.attention_dropout);
    config["layer_norm_eps"] = shortest(vit.norm_epsilon);
    config["qkv_bias"] = vit.qkv_bias;
    config["image_size"] = image_size(vit, slices);
    config["num_channels"] =
        slice_named(slices, "vit.embeddings.patch_embeddings.projection.weight").shape[3];
    write_labels(vit.classes, config);
  }

  std::vector<TensorPart> parts(const ModelConfig& /*model*/,
                                const std::string& name) const override {
    std::vector<TensorPart> parts =
        split_tensor(name,
                     ".attention.qkv.",
                     {{".attention.query."}, {".attention.key."}, {".attention.value."}});
    if (!parts.empty()) return parts;
    TensorPart part{name};
    if (name == "vit.embeddings.cls_token") part.leading_ones = 2;
    if (name == "vit.embeddings.position_embeddings") part.leading_ones = 1;
    return {part};
  }

  std::string name_in_memory(const std::string& name) const override {
    constexpr std::pair<const char*, const char*> kNames[] = {
        {".encoder.layer.", ".layers."},
        {".attention.attention.query.", ".attention.q_proj."},
        {".attention.attention.key.", ".attention.k_proj."},
        {".attention.attention.value.", ".attention.v_proj."},
        {".attention.output.dense.", ".attention.o_proj."},
        {".intermediate.dense.", ".mlp.fc1."},
        {".output.dense.", ".mlp.fc2."}};
    std::string now = name;
    for (const auto& [file, memory] : kNames) {
      const size_t at = now.find(file);
      if (at != std::string::npos) now.replace(at, std::string(file).size(), memory);
    }
    return now == name ? "" : now;
  }

  bool is_head(const std::string& name) const override { return name.starts_with("classifier."); }

  bool has_row_per_class(const std::string& name) const override { return is_head(name); }

  // The pooler is a layer of the body that the classifier does not use.
  bool is_ignored_tensor(const std::string& name) const override {
    return name.starts_with("vit.pooler.") || name.starts_with("pooler.");
  }

 private:
  // 0, which leaves the number to the data, if the folder is of a body alone or names neither head
  // nor classes.
  static int64_t read_classes(ConfigFields& fields) {
    const std::vector<std::string> architectures = fields.texts("architectures");
    if (architectures.empty()) return read_labels(fields, 0);
    const int64_t labels = read_labels(fields, kDefaultLabels);
    return architectures[0].ends_with("ForImageClassification") ? labels : 0;
  }

  static int64_t image_size(const VitConfig& vit,
                            const std::vector<checkpoint::NamedSlice>& slices) {
    const int64_t patches = slice_named(slices, "vit.embeddings.position_embeddings").shape[0] - 1;
    const auto across = static_cast<int64_t>(std::lround(std::sqrt(patches)));
    if (across * across != patches)
      throw ConfigError(
          "model.vit: {} patches do not form a square image, which Hugging Face folders require",
          patches);
    return across * vit.patch;
  }
};

}  // namespace

const Family& vit_family() {
  static const Vit family;
  return family;
}

}  // namespace lockstep::huggingface
