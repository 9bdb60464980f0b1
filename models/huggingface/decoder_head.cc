#include "models/huggingface/decoder_head.h"

#include <string_view>
#include <vector>

#include "models/huggingface/labels.h"

namespace lockstep::huggingface {
namespace {

constexpr char kOfTexts[] = "ForSequenceClassification";

}  // namespace

DecoderHead read_head(ConfigFields& fields) {
  const std::vector<std::string> architectures = fields.texts("architectures");
  const bool is_reward = !architectures.empty() && architectures[0].ends_with(kOfTexts) &&
                         read_labels(fields, kDefaultLabels) == 1;
  return is_reward ? DecoderHead::kReward : DecoderHead::kTokens;
}

void write_head(DecoderHead head, const std::string& of_tokens, Json& config) {
  std::string architecture = of_tokens;
  if (head == DecoderHead::kReward) {
    for (const std::string_view end : {"ForCausalLM", "LMHeadModel"})
      if (architecture.ends_with(end)) architecture.erase(architecture.size() - end.size());
    architecture += kOfTexts;
    write_labels(1, config);
  }
  config["architectures"] = Json::array({Json(architecture)});
}

}  // namespace lockstep::huggingface
