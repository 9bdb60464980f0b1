#pragma once
// The names of classes in a config.json: id2label and label2id.

#include <cstdint>
#include <string>
#include <vector>

#include "models/huggingface/config_fields.h"

namespace lockstep::huggingface {

// How many labels id2label has, or num_labels says; else `otherwise`. Throws ConfigError where the
// two do not agree, and for an id2label that transformers cannot read.
int64_t read_labels(ConfigFields& fields, int64_t otherwise);

// How many labels a head of transformers has that does not say it.
inline constexpr int64_t kUsualLabels = 2;

// The names by number; none where id2label does not name them from 0 on, or only as LABEL_0, LABEL_1.
std::vector<std::string> label_names(const Json& config);

// Sets id2label and label2id for so many classes. The first ones are those of `names`; others keep
// their names where id2label has as many and `names` are its first ones, else are LABEL_2, LABEL_3.
void write_labels(int64_t classes, Json& config);
void name_labels(const std::vector<std::string>& names, Json& config);

// What a person should know where the data name the classes otherwise than config.json, which
// `origin` names; empty: nothing.
std::string note_of_labels(const Json& config,
                           const std::string& origin,
                           const std::vector<std::string>& names);

}  // namespace lockstep::huggingface
