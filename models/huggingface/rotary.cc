#include "models/huggingface/family.h"

namespace lockstep::huggingface {
namespace {

using Scaling = LlamaConfig::RopeScaling;

// Reads rope_scaling or rope_parameters: the kind of scaling and, in newer files, theta.
void read_scaling(ConfigFields fields, int64_t context, RotaryFields& rotary) {
  rotary.theta = fields.number("rope_theta", rotary.theta);
  const char* kind = fields.has("rope_type") ? "rope_type" : "type";
  const std::string type = fields.text(kind, "default");
  fields.ignore({"rope_type", "type"});
  const int64_t original = fields.integer("original_max_position_embeddings", context);
  if (type == "default") return;
  rotary.factor = fields.number("factor");
  if (type == "linear") {
    rotary.scaling = Scaling::kLinear;
  } else if (type == "dynamic") {
    rotary.scaling = Scaling::kDynamic;
    rotary.original_context = context;  // transformers ignores the object's own field here
  } else if (type == "llama3") {
    rotary.scaling = Scaling::kLlama3;
    rotary.low_freq_factor = fields.number("low_freq_factor");
    rotary.high_freq_factor = fields.number("high_freq_factor");
    rotary.original_context = original;
  } else {
    fields.refuse(kind, "default, linear, dynamic, llama3");
  }
  fields.require_known("rotary positions");
}

const char* type_of(Scaling scaling) {
  switch (scaling) {
    case Scaling::kNoScaling: return "default";
    case Scaling::kLinear: return "linear";
    case Scaling::kDynamic: return "dynamic";
    case Scaling::kLlama3: return "llama3";
  }
  return "default";
}

}  // namespace

RotaryFields read_rotary(ConfigFields& fields, int64_t context) {
  RotaryFields rotary;
  rotary.theta = fields.number("rope_theta", rotary.theta);
  if (fields.has("rope_scaling") && fields.has("rope_parameters"))
    fields.refuse("rope_scaling", "null, because rope_parameters is set");
  if (fields.has("rope_scaling")) read_scaling(fields.object("rope_scaling"), context, rotary);
  if (fields.has("rope_parameters"))
    read_scaling(fields.object("rope_parameters"), context, rotary);
  return rotary;
}

void write_rotary(const RotaryFields& rotary, Json& config) {
  Json scaling = Json::object({{"rope_type", type_of(rotary.scaling)}});
  if (rotary.scaling != Scaling::kNoScaling) scaling["factor"] = rotary.factor;
  if (rotary.scaling == Scaling::kLlama3) {
    scaling["low_freq_factor"] = rotary.low_freq_factor;
    scaling["high_freq_factor"] = rotary.high_freq_factor;
    scaling["original_max_position_embeddings"] = rotary.original_context;
  }
  if (config.contains("rope_parameters")) {
    scaling["rope_theta"] = rotary.theta;
    config["rope_parameters"] = scaling;
    return;
  }
  config["rope_theta"] = rotary.theta;
  config["rope_scaling"] = rotary.scaling == Scaling::kNoScaling ? Json() : scaling;
}

}  // namespace lockstep::huggingface
